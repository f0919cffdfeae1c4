#!/bin/sh
# How the launcher reaches another host: over the trust between the cluster's hosts, with the run's mark.
#
# usage: sh rsh.sh HOST COMMAND...
#
# What the launcher starts there has to be found at the end of the run, and so do its ranks: the command gets the
# environment that the agent gave to the launcher here. A host that is silent for 15 s counts as gone.
#
# In a container it starts the cell's container on the other host, around that command (see peer.sh of the cell),
# by the way that node.sh of the cell found on this host.
host=$1
shift
quoted() {
    printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"
}
reach() {
    exec ssh -T -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=10 \
        -o ServerAliveInterval=5 -o ServerAliveCountMax=3 "$@"
}
if [ -n "${RUNKIT_HOST_FOLDER:-}" ]; then
    reach -F "$RUNKIT_FOLDER/ssh_config" -- "$host" "cd $(quoted "$RUNKIT_HOST_FOLDER") && RUNKIT_RUN='$RUNKIT_RUN' \
        RUNKIT_CELL='$RUNKIT_CELL' exec sh 'cells/$RUNKIT_CELL/peer.sh' $(quoted "$*")"
fi
reach -- "$host" \
    "export RUNKIT_RUN='$RUNKIT_RUN' RUNKIT_CELL='$RUNKIT_CELL' TMPDIR='$TMPDIR'; mkdir -p -m 700 \"\$TMPDIR\"; $*"
