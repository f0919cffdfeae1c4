"""A stand-in for a training: real ranks that step together and can be told to go wrong in known ways.

Writes the log family "runkit". Every option but --steps and --pause is a fault: RANK@STEP says who and when.
"""

import argparse
import os
import signal
import subprocess
import sys
import time

from mpi4py import MPI


def at(text: str) -> tuple[int, int]:
    rank, _, step = text.partition("@")
    return int(rank), int(step)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--crash", type=at, help="raise an exception")
    parser.add_argument("--die", type=at, help="be killed with SIGKILL")
    parser.add_argument("--hang", type=at, help="sleep for ever")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM and SIGINT")
    parser.add_argument("--orphan", action="store_true", help="leave a child in a session of its own")
    parser.add_argument("--nan", type=at, help="print a loss that is not a number")
    parser.add_argument("--fill", help="fill the disk of this folder at step 5")
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    if args.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if args.orphan:
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                f"import signal, time; {'signal.signal(15, 1);' * args.stubborn} time.sleep(600)",
            ],
            start_new_session=True,
        )
    train(MPI.COMM_WORLD, args)


def train(world: MPI.Intracomm, args: argparse.Namespace) -> None:
    global_batch = args.batch_size * world.size
    say(
        world,
        f"runkit start workload=trainer started=2026-01-01T00:00:00Z cards={world.size} hosts=1"
        f" batch_size={args.batch_size} global_batch={global_batch} precision=fp32 unit=images/sec seed=1"
        ' model=none framework=none framework_version=1 mpi="test" train_images=1 test_images=1 parameters=1',
    )
    began = time.monotonic()
    for step in range(1, args.steps + 1):
        time.sleep(args.pause)
        go_wrong((world.rank, step), args)
        world.barrier()
        loss = "nan" if args.nan == (world.rank, step) else f"{1 / step:.6f}"
        rate = global_batch / args.pause
        say(
            world,
            f"runkit step step={step} epoch=0 time={time.monotonic() - began:.4f} loss={loss}"
            f" step_time={args.pause:.6f} rate={rate:.1f} compute=0.0 allreduce=0.0"
            f" done={step / args.steps:.4f}",
        )
    say(
        world,
        f"runkit summary steps={args.steps} epochs=1 time={time.monotonic() - began:.4f} images=1"
        f" rate={global_batch / args.pause:.1f} loss=0.1 accuracy=0.5 ranks={world.size} parameters_sha256=00"
        " parameters_agree=true",
    )


def go_wrong(here: tuple[int, int], args: argparse.Namespace) -> None:
    if here == args.crash:
        raise RuntimeError("the network is on fire")
    if here == args.die:
        os.kill(os.getpid(), signal.SIGKILL)
    if here == args.hang:
        time.sleep(600)
    if args.fill and here == (0, 5):
        fill(args.fill)


def fill(folder: str) -> None:
    with open(os.path.join(folder, "ballast"), "ab", buffering=0) as stream:
        block = b"\1" * 4096
        try:
            while True:
                stream.write(block)
        except OSError:
            pass


def say(world: MPI.Intracomm, text: str) -> None:
    if world.rank == 0:
        print(text, flush=True)


main()
