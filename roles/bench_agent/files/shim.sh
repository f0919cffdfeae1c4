#!/bin/sh
# The shim: stands between the launcher and one rank, records who the rank is, then becomes it.
#
# usage: sh shim.sh CELL COMMAND [ARGUMENT...]
#
# It runs in the run's folder on the rank's host, writes cells/CELL/logs/HOST/rank-NNNN.txt (KEY=VALUE lines),
# sends the rank's output to rank-NNNN.stdout and rank-NNNN.stderr beside it (one file per rank and stream, so
# that nothing is interleaved), and executes COMMAND in its own place: the rank keeps the shim's process id.
#
# POSIX sh, because every rank pays for it and every container has it: as a Python program it made 32 ranks on
# two cores start 0.4 s later, as this they start 0.1 s later.
set -eu

cell=$1 host=
shift
root=${RUNKIT_FOLDER:-.} # in a container the run's folder is not where the rank starts
# shellcheck disable=SC2094 # read here, never written
[ ! -f "$root/host" ] || read -r host <"$root/host"
host=${host:-$(uname -n)} # where a cell was started by hand, nobody named the other hosts

# By what launchers tell a process its place, most specific first.
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${RANK:-${SLURM_PROCID:-0}}}}}
local_rank=${OMPI_COMM_WORLD_LOCAL_RANK:-${MPI_LOCALRANKID:-${LOCAL_RANK:-${SLURM_LOCALID:-}}}}
world_size=${OMPI_COMM_WORLD_SIZE:-${PMI_SIZE:-${WORLD_SIZE:-${SLURM_NTASKS:-}}}}
case $rank in
? | ?? | ???) padded=$((10000 + rank)) && padded=${padded#1} ;;
*) padded=$rank ;;
esac

folder=$root/cells/$cell/logs/$host
[ -d "$folder" ] || mkdir -p "$folder"
{
    read -r hostname </proc/sys/kernel/hostname || :
    printf '%s=%s\n' host "$host" hostname "$hostname" rank "$rank" local_rank "$local_rank" \
        world_size "$world_size" pid $$ devices "${CUDA_VISIBLE_DEVICES:-${NVIDIA_VISIBLE_DEVICES:-}}"
    # shellcheck disable=SC3045 # in dash, bash and busybox alike; elsewhere the value stays empty
    printf 'memlock_kib=' && ulimit -l
    # shellcheck disable=SC3045
    printf 'nofile=' && ulimit -n
    date +started=%s
    stat -f -c 'shm_bytes=%b*%S' /dev/shm || :
} >"$folder/rank-$padded.txt" 2>/dev/null

# Killed ranks leave their shared memory behind; in a folder of the run the agent finds it and removes it.
shm=/dev/shm/runkit-${RUNKIT_RUN:-}
[ -d "$shm" ] || mkdir -m 700 "$shm" 2>/dev/null || : # another rank was first
[ ! -w "$shm" ] || export OMPI_MCA_btl_vader_backing_directory="${OMPI_MCA_btl_vader_backing_directory:-$shm}"

exec "$@" >>"$folder/rank-$padded.stdout" 2>>"$folder/rank-$padded.stderr"
