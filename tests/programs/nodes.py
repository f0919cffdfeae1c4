"""A stand-in for a framework's own launcher: one process per host, told its place by its arguments.

Node 0 listens at the master's address, the others call it and say how many cards they have. So the sum in
its log, of the family "runkit", is right only where all of them were there and were told the truth.
"""

import argparse
import contextlib
import socket
import time
from collections.abc import Iterator

ANSWER_S = 30  # for all nodes to be there


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("node-rank", "hosts", "cards-here", "port", "batch-size"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--master", required=True)
    parser.add_argument("--precision", required=True)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    print(f"node {args.node_rank} of {args.hosts} in {socket.gethostname()}", flush=True)
    if args.node_rank:
        with called(args.master, args.port) as master:
            master.sendall(bytes([args.cards_here]))
            master.recv(1)  # until the master's end
        return
    with answered(args.master, args.port, args.hosts - 1) as counts:
        train(args, args.cards_here + sum(counts))


def called(master: str, port: int) -> socket.socket:
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return socket.create_connection((master, port))
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextlib.contextmanager
def answered(master: str, port: int, others: int) -> Iterator[list[int]]:
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((master, port)))
        listening.settimeout(ANSWER_S)
        nodes = [stack.enter_context(listening.accept()[0]) for _ in range(others)]
        yield [node.recv(1)[0] for node in nodes]


def train(args: argparse.Namespace, cards: int) -> None:
    global_batch, pause, began = args.batch_size * cards, 0.05, time.monotonic()
    print(
        f"runkit start workload=contained started=2026-01-01T00:00:00Z cards={cards} hosts={args.hosts}"
        f" batch_size={args.batch_size} global_batch={global_batch} precision={args.precision}"
        " unit=images/sec seed=1 model=none framework=none framework_version=1",
        flush=True,
    )
    for step in range(1, args.steps + 1):
        time.sleep(pause)
        print(
            f"runkit step step={step} epoch=0 time={time.monotonic() - began:.4f} loss={1 / step:.6f}"
            f" step_time={pause:.6f} rate={global_batch / pause:.1f} done={step / args.steps:.4f}",
            flush=True,
        )
    print(
        f"runkit summary steps={args.steps} epochs=1 time={time.monotonic() - began:.4f} images=1"
        f" rate={global_batch / pause:.1f} loss=0.1 accuracy=0.5",
        flush=True,
    )


main()
