"""Train a small convolutional network on handwritten digits, data-parallel over MPI ranks, one per card.

    mpirun -np 8 python train.py --batch-size 32 --seconds 20

The network is conv 3x3 (8) - ReLU - conv 3x3 (16) - ReLU - max pool 2x2 - dense (32) - ReLU - dense (10) -
softmax cross-entropy, in float32. Every step takes the next cards x batch-size images of an endless row of
seeded permutations of the training set; each rank takes its share of them; one all-reduce adds the gradients.
So the loss curve depends on the global batch and the seed, not on how many ranks share the work.

Methods: initial weights by He et al. 2015 (arXiv:1502.01852); stochastic gradient descent with momentum 0.9
and weight decay 0.001, its learning rate proportional to the square root of the global batch (Krizhevsky
2014, arXiv:1404.5997); fp16 sends gradients in half precision with a loss scale, a step that overflows is
skipped (Micikevicius et al. 2018, arXiv:1710.03740, section 3.2), and the scale adapts. The data are
described in DATA.md.

The log is one ``runkit EVENT key=value ...`` line per event on the standard output of rank 0. In it, ``time``
is seconds since the training began, evaluations included; ``step_time``, ``compute``, ``allreduce`` (seconds
per step, on rank 0) and ``rate`` (images per second, all cards) are means since the line before, evaluations
left out. ``rate`` of the summary is that of the ``rate_steps`` steps after the warm-up, of all steps where
there are none after it; ``loss`` is that of the last logged step.

Exit status: 0, 1 where the target was not reached or the ranks ended with different parameters, 2 for a bad
option. Runs on Python 3.8, NumPy 1.19 and mpi4py 3.0 or later.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import sys
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

os.environ.setdefault("OMP_NUM_THREADS", "1")  # a card is one thread, however many cores there are

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from numpy.typing import NDArray

    Array = NDArray[Any]
if TYPE_CHECKING or __name__ == "__main__":  # importing it starts MPI: only where this file is the program
    from mpi4py import MPI

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "digits.npz")

# Weights and biases in their order in the flat vector of parameters. A convolution is a matrix that is
# applied to patches, the values of a patch in the order row, column, channel.
SHAPES = ((9, 8), (8,), (72, 16), (16,), (144, 32), (32,), (32, 10), (10,))
PARAMETERS = sum(math.prod(shape) for shape in SHAPES)

MOMENTUM = 0.9
WEIGHT_DECAY = 0.001  # also keeps what is learned no more from fading into denormal numbers, which are slow
LEARNING_RATE = 0.05  # at a global batch of 256
HIGHEST_RATE = 0.1  # reached at a global batch of 1024; much above it the training diverges
FIRST_SCALE = 2.0**16  # of the loss in fp16: halved when a sum overflows, doubled after SCALE_STEPS without
HIGHEST_SCALE = 2.0**30
SCALE_STEPS = 200
MAX_EPOCHS = 200
LINE_S = 0.2  # the interval of the log doubles until its lines are at least so many seconds apart

DECIMALS = {"time": 6, "step_time": 9, "compute": 9, "allreduce": 9, "loss": 8, "rate": 3, "done": 4}


# --- data ----------------------------------------------------------------------------------


class Digits(NamedTuple):
    """``images``: (n, 10, 10, 1), 8x8 pixels in [-1, 1] in a margin of background; ``labels``: (n,), 0..9."""

    images: Array
    labels: Array


def load(path: str = DATA) -> tuple[Digits, Digits]:
    """The training and the test set. Of each digit, every fifth image in the file's order is for the test."""
    with np.load(path, allow_pickle=False) as file:
        pixels, labels = file["images"], file["labels"].astype(np.intp)
    images = np.full((len(labels), 10, 10, 1), -1, np.float32)
    images[:, 1:9, 1:9, 0] = pixels / np.float32(8) - 1
    test = np.zeros(len(labels), bool)
    for digit in range(10):
        test[np.flatnonzero(labels == digit)[4::5]] = True
    return Digits(images[~test], labels[~test]), Digits(images[test], labels[test])


@lru_cache(maxsize=2)
def permutation(seed: int, epoch: int, size: int) -> Array:
    """The order of one epoch. RandomState, since NumPy promises that its streams never change (NEP 19)."""
    return np.random.RandomState([seed, epoch]).permutation(size)


def sample(seed: int, first: int, count: int, size: int) -> Array:
    """Indices at the positions [first, first + count) of the endless row of permutations of ``size``."""
    parts = []
    while count:
        epoch, start = divmod(first, size)
        part = permutation(seed, epoch, size)[start : start + count]
        parts.append(part)
        first, count = first + len(part), count - len(part)
    return np.concatenate(parts)


# --- network -------------------------------------------------------------------------------


class Activations(NamedTuple):
    """What the backward pass needs of the forward pass, for n images."""

    patches1: Array  # (n * 64, 9)
    hidden1: Array  # (n, 8, 8, 8)
    patches2: Array  # (n * 36, 72)
    maps: Array  # (n, 6, 6, 16)
    rows: Array  # (n, 3, 6, 16)
    pooled: Array  # (n, 144)
    hidden3: Array  # (n, 32)
    logits: Array  # (n, 10)


def views(flat: Array) -> list[Array]:
    """The parts of a flat vector of parameters or gradients, in the order of SHAPES, sharing its memory."""
    parts, start = [], 0
    for shape in SHAPES:
        end = start + math.prod(shape)
        parts.append(flat[start:end].reshape(shape))
        start = end
    return parts


def initial_parameters(seed: int) -> Array:
    """Weights with variance 2 / inputs (He et al. 2015), biases of zero; a flat float32 vector."""
    stream = np.random.RandomState(seed)
    flat = np.zeros(PARAMETERS, np.float32)
    for part in views(flat):
        if part.ndim == 2:
            part[:] = stream.standard_normal(part.shape) * math.sqrt(2 / len(part))
    return flat


def patches(maps: Array) -> Array:
    """All 3x3 patches of (n, h, w, c) contiguous maps, as the rows of a (n * (h-2) * (w-2), 9 * c) matrix."""
    n, height, width, channels = maps.shape
    image, row, column, value = maps.strides
    windows = np.lib.stride_tricks.as_strided(
        maps, (n, height - 2, width - 2, 3, 3 * channels), (image, row, column, row, value), writeable=False
    )
    return windows.reshape(-1, 9 * channels)


def scatter(gradient: Array, weights: Array) -> Array:
    """The gradient with respect to the input of a convolution, from the (n, h, w, c) one of its output.

    It is itself a convolution: of the output's gradient, in a margin of zeros, with each kernel turned round.
    """
    n, height, width, channels = gradient.shape
    framed = np.zeros((n, height + 4, width + 4, channels), gradient.dtype)
    framed[:, 2:-2, 2:-2] = gradient
    turned = weights.reshape(3, 3, -1, channels)[::-1, ::-1].transpose(0, 1, 3, 2).reshape(9 * channels, -1)
    return (patches(framed) @ turned).reshape(n, height + 2, width + 2, -1)


def column_sums(matrix: Array, out: Array) -> None:
    """As ``matrix.sum(axis=0, out=out)``, which takes ten times as long for a narrow matrix."""
    np.matmul(np.ones(len(matrix), matrix.dtype), matrix, out=out)


def relu(values: Array) -> Array:
    return np.maximum(values, 0, out=values)


def forward(parameters: Array, images: Array) -> Activations:
    """All activations. The ReLU follows the pooling here: they commute, and fewer values are left."""
    w1, b1, w2, b2, w3, b3, w4, b4 = views(parameters)
    n = len(images)
    patches1 = patches(images)
    hidden1 = relu(patches1 @ w1 + b1).reshape(n, 8, 8, 8)
    patches2 = patches(hidden1)
    maps = (patches2 @ w2).reshape(n, 6, 6, 16)
    rows = np.maximum(maps[:, 0::2], maps[:, 1::2])
    pooled = relu(np.maximum(rows[:, :, 0::2], rows[:, :, 1::2]) + b2).reshape(n, 144)
    hidden3 = relu(pooled @ w3 + b3)
    return Activations(patches1, hidden1, patches2, maps, rows, pooled, hidden3, hidden3 @ w4 + b4)


def cross_entropy(logits: Array, labels: Array) -> tuple[float, Array]:
    """The sum of the losses of (n, 10) logits in nats, and its gradient."""
    each = np.arange(len(labels))
    shifted = logits - logits.max(axis=1, keepdims=True)
    powers = np.exp(shifted)
    totals = powers.sum(axis=1, keepdims=True)
    gradient = powers / totals
    gradient[each, labels] -= 1
    return float((np.log(totals[:, 0]) - shifted[each, labels]).sum()), gradient


def unpool(gradient: Array, a: Activations) -> Array:
    """Hand the gradient of each pooled value to the one it was taken from; of equal ones the first."""
    rows, maps = np.empty_like(a.rows), np.empty_like(a.maps)
    left = a.rows[:, :, 0::2] >= a.rows[:, :, 1::2]
    np.multiply(gradient, left, out=rows[:, :, 0::2])
    np.multiply(gradient, ~left, out=rows[:, :, 1::2])
    upper = a.maps[:, 0::2] >= a.maps[:, 1::2]
    np.multiply(rows, upper, out=maps[:, 0::2])
    np.multiply(rows, ~upper, out=maps[:, 1::2])
    return maps


def loss_and_gradient(parameters: Array, images: Array, labels: Array) -> tuple[float, Array]:
    """The sum of the losses of the images, and its gradient: a flat vector, as are the parameters."""
    a = forward(parameters, images)
    loss, d_logits = cross_entropy(a.logits, labels)
    flat = np.empty_like(parameters)
    w1, b1, w2, b2, w3, b3, w4, b4 = views(flat)
    _, _, weights2, _, weights3, _, weights4, _ = views(parameters)
    np.matmul(a.hidden3.T, d_logits, out=w4)
    column_sums(d_logits, out=b4)
    d_hidden3 = (d_logits @ weights4.T) * (a.hidden3 > 0)
    np.matmul(a.pooled.T, d_hidden3, out=w3)
    column_sums(d_hidden3, out=b3)
    d_pooled = (d_hidden3 @ weights3.T) * (a.pooled > 0)
    column_sums(d_pooled.reshape(-1, 16), out=b2)
    d_maps = unpool(d_pooled.reshape(-1, 3, 3, 16), a)
    np.matmul(a.patches2.T, d_maps.reshape(-1, 16), out=w2)
    d_hidden1 = (scatter(d_maps, weights2) * (a.hidden1 > 0)).reshape(-1, 8)
    np.matmul(a.patches1.T, d_hidden1, out=w1)
    column_sums(d_hidden1, out=b1)
    return loss, flat


def correct(parameters: Array, digits: Digits) -> int:
    """How many images the network names rightly."""
    return int((forward(parameters, digits.images).logits.argmax(axis=1) == digits.labels).sum())


# --- optimizer -----------------------------------------------------------------------------


def learning_rate(global_batch: int) -> float:
    return min(HIGHEST_RATE, LEARNING_RATE * math.sqrt(global_batch / 256))


class Momentum:
    """Stochastic gradient descent.

    velocity = 0.9 velocity + gradient + 0.001 parameters; parameters -= rate velocity.
    """

    def __init__(self, rate: float, parameters: Array) -> None:
        self.rate = rate
        self.velocity = np.zeros_like(parameters)

    def step(self, parameters: Array, gradient: Array) -> None:
        self.velocity *= MOMENTUM
        self.velocity += gradient
        self.velocity += WEIGHT_DECAY * parameters
        parameters -= self.rate * self.velocity


class SingleWire:
    """Gradients travel as they are."""

    def pack(self, gradient: Array) -> Array:
        """What this rank adds to the sum over all ranks."""
        return gradient

    def unpack(self, total: Array) -> Array | None:
        """The gradient from that sum; None where the step must be skipped."""
        return total

    def facts(self) -> dict[str, object]:
        """What the summary tells of it."""
        return {}


class HalfWire(SingleWire):
    """Gradients travel in half precision, multiplied by ``scale`` so that small ones do not become zero.

    A sum that overflowed is the same on all ranks, so all skip the step and lower the scale alike.
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.skipped = 0
        self.clean = 0  # steps since the scale changed

    def pack(self, gradient: Array) -> Array:
        with np.errstate(over="ignore"):
            return (gradient * self.scale).astype(np.float16)

    def unpack(self, total: Array) -> Array | None:
        if not np.isfinite(total).all():
            self.scale, self.clean, self.skipped = max(self.scale / 2, 1.0), 0, self.skipped + 1
            return None
        gradient: Array = total.astype(np.float32) / self.scale
        self.clean += 1
        if self.clean == SCALE_STEPS:
            self.scale, self.clean = min(self.scale * 2, HIGHEST_SCALE), 0
        return gradient

    def facts(self) -> dict[str, object]:
        return {"skipped_steps": self.skipped, "loss_scale": f"{self.scale:.10g}"}


# --- options and log -----------------------------------------------------------------------


class BadOption(Exception):
    """The command line cannot be used; the message is one line."""


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadOption(message)


class Options(argparse.Namespace):
    """The command line; exactly one of ``steps``, ``seconds`` and ``target`` is not None."""

    batch_size: int
    precision: str
    seed: int
    steps: int | None
    seconds: float | None
    target: float | None
    max_epochs: int | None
    log_every: int | None
    warmup_steps: int
    loss_scale: float | None


def whole(low: int, high: int = 10**9) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (text.isdecimal() and len(text) <= 10 and low <= int(text) <= high):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return read


def number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low:g} to {high:g}")
        return value

    return read


def read_options(argv: Sequence[str]) -> Options:
    """Raises BadOption."""
    text = "Train on handwritten digits, one MPI rank per card, for so long:"
    parser = Parser(prog="train.py", usage="%(prog)s OPTION...", description=text, allow_abbrev=False)
    end = parser.add_mutually_exclusive_group(required=True).add_argument
    end("--steps", type=whole(1), help="so many steps")
    end("--seconds", type=number(0.01, 1e6), help="so many seconds")
    end("--target", type=number(0.01, 1), help="until the test at the end of an epoch has this accuracy")
    add = parser.add_argument
    add("--max-epochs", type=whole(1), help=f"or this many epochs, with --target ({MAX_EPOCHS})")
    add("--batch-size", type=whole(1, 1024), default=32, help="images per card and step (32)")
    add("--precision", choices=("fp32", "fp16"), default="fp32", help="of the gradients on their way (fp32)")
    add("--loss-scale", type=number(1, HIGHEST_SCALE), help=f"at the start, with fp16 ({FIRST_SCALE:.0f})")
    add("--seed", type=whole(0, 2**32 - 1), default=1, help="of initial weights and sample order (1)")
    add("--warmup-steps", type=whole(0), default=10, help="left out of the rate of the summary (10)")
    add("--log-every", type=whole(1), help="log each step whose number it divides (some 4 lines a second)")
    options = parser.parse_args(argv, Options())
    if options.max_epochs and options.target is None:
        parser.error("--max-epochs goes with --target")
    if options.loss_scale and options.precision != "fp16":
        parser.error("--loss-scale goes with --precision fp16")
    return options


def line(event: str, words: Mapping[str, object]) -> str:
    """One line of the log; a word that is None is left out."""
    pairs = [f"{key}={shown(key, value)}" for key, value in words.items() if value is not None]
    return " ".join(["runkit", event, *pairs])


def shown(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.{DECIMALS.get(key, 6)}f}"
    text = " ".join(str(value).replace('"', "'").split())
    return f'"{text}"' if " " in text else text


def log(event: str, **words: object) -> None:
    print(line(event, words), flush=True)


class Meter:
    """Where the time of a rank goes, in seconds since the training began.

    ``now`` stands at the end of the last step or evaluation, ``trained`` is that without the evaluations.
    """

    def __init__(self) -> None:
        self.start = time.perf_counter()
        self.now = self.trained = self.compute = self.allreduce = 0.0
        self.line_step, self.line_s = 0, 0.0  # at the last line

    def step(self, begun: float, computed: float, added: float) -> None:
        """A step ends; its all-reduce went on from ``computed`` to ``added``, by ``time.perf_counter``."""
        ended = time.perf_counter()
        self.trained += ended - self.start - self.now
        self.now = ended - self.start
        self.compute += ended - added + computed - begun
        self.allreduce += added - computed

    def evaluation(self, begun: float) -> None:
        ended = time.perf_counter()
        self.trained += begun - self.start - self.now
        self.now = ended - self.start

    def lap(self, step: int, images: int) -> dict[str, float]:
        """Means since the last lap: seconds per step, ``images`` of a step per second."""
        steps, seconds = step - self.line_step, self.trained - self.line_s
        compute, allreduce = self.compute / steps, self.allreduce / steps
        self.line_step, self.line_s, self.compute, self.allreduce = step, self.trained, 0.0, 0.0
        rate = images * steps / seconds
        return {"step_time": seconds / steps, "rate": rate, "compute": compute, "allreduce": allreduce}


# --- training ------------------------------------------------------------------------------


def add_halves(source: Any, target: Any, datatype: Any) -> None:
    """Add float16 values, which MPI knows only as so many 2-byte elements; perhaps a part of a message."""
    total = np.frombuffer(target, np.float16)
    with np.errstate(over="ignore", invalid="ignore"):
        np.add(total, np.frombuffer(source, np.float16), out=total)


class Ranks:
    """This rank among all, and what they do together."""

    def __init__(self, comm: MPI.Intracomm) -> None:
        self.comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()
        self.halves = MPI.Op.Create(add_halves, commute=True)

    def add(self, values: Array) -> None:
        """Replace ``values`` by their sum over all ranks."""
        if values.dtype == np.float16:
            self.comm.Allreduce(MPI.IN_PLACE, [values.view(np.uint16), MPI.UINT16_T], op=self.halves)
        else:
            self.comm.Allreduce(MPI.IN_PLACE, values, op=MPI.SUM)

    def hosts(self) -> int:
        return len(set(self.comm.allgather(MPI.Get_processor_name())))

    def abort(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """End all ranks after an error of this one, for which the others would wait forever."""
        sys.__excepthook__(kind, error, trace)
        sys.stderr.flush()
        self.comm.Abort(1)


class Training:
    """One rank's part of a training, and on rank 0 its log."""

    def __init__(self, options: Options, ranks: Ranks) -> None:
        self.options, self.ranks = options, ranks
        self.images = options.batch_size * ranks.size  # of one step: the global batch
        self.digits, test = load()
        self.tests = len(test.labels)
        self.test = Digits(test.images[ranks.rank :: ranks.size], test.labels[ranks.rank :: ranks.size])
        self.parameters = initial_parameters(options.seed)
        self.optimizer = Momentum(learning_rate(self.images), self.parameters)
        half = options.precision == "fp16"
        self.wire = HalfWire(options.loss_scale or FIRST_SCALE) if half else SingleWire()
        self.step = 0
        self.every = options.log_every or 1
        self.loss = self.accuracy = math.nan
        self.over = False
        self.warm = (0, 0.0)  # step and second from which the final rate counts
        self.meter = Meter()

    def epoch(self, back: int = 0) -> int:
        """Whole passes over the training set so far, or ``back`` steps ago."""
        return (self.step - back) * self.images // len(self.digits.labels)

    def announce(self) -> None:
        options, (vendor, version) = self.options, MPI.get_vendor()
        log(
            "start",
            workload="digits",
            started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            cards=self.ranks.size,
            hosts=self.ranks.hosts(),
            batch_size=options.batch_size,
            global_batch=self.images,
            precision=options.precision,
            unit="images/sec",
            seed=options.seed,
            model="cnn",
            framework="NumPy",
            framework_version=np.__version__,
            mpi=" ".join([vendor, ".".join(map(str, version))]),
            train_images=len(self.digits.labels),
            test_images=self.tests,
            parameters=PARAMETERS,
        )

    def run(self) -> int:
        """Train, evaluate, sum up; returns the exit status."""
        self.announce()
        self.ranks.comm.Barrier()
        self.meter = Meter()
        while not self.over:
            loss = self.advance()
            if self.step % self.every == 0 or self.step == self.options.steps:
                self.note(loss)
            if self.options.target is not None and self.epoch() > self.epoch(back=1):
                self.evaluate()
                enough = self.options.max_epochs or MAX_EPOCHS
                self.over = self.accuracy >= self.options.target or self.epoch() >= enough
        end, trained = self.meter.now, self.meter.trained
        if self.options.target is None:
            self.evaluate()
        return self.sum_up(end, trained)

    def advance(self) -> float:
        """One step of all ranks together; the sum of the losses of this rank's images."""
        begun = time.perf_counter()
        size = self.options.batch_size
        first = self.step * self.images + self.ranks.rank * size
        batch = sample(self.options.seed, first, size, len(self.digits.labels))
        loss, gradient = loss_and_gradient(
            self.parameters, self.digits.images[batch], self.digits.labels[batch]
        )
        message = self.wire.pack(gradient / self.images)
        computed = time.perf_counter()
        self.ranks.add(message)
        added = time.perf_counter()
        total = self.wire.unpack(message)
        if total is not None:
            self.optimizer.step(self.parameters, total)
        self.step += 1
        self.meter.step(begun, computed, added)
        if self.step == self.options.warmup_steps:
            self.warm = (self.step, self.meter.trained)
        return loss

    def note(self, loss: float) -> None:
        """Log a step. Its mean loss, and what rank 0 decides by its clock, go round in one small sum."""
        now, done, lap = self.meter.now, self.done(), self.meter.lap(self.step, self.images)
        more = self.options.log_every is None and lap["step_time"] * self.every < LINE_S
        words = np.array([loss / self.images, 0, 0])
        if self.ranks.rank == 0:
            words[1:] = done == 1, more
        self.ranks.add(words)
        self.loss, self.over = float(words[0]), bool(words[1])
        self.every *= 2 if words[2] else 1
        log("step", step=self.step, epoch=self.epoch(), time=now, loss=self.loss, **lap, done=done)

    def done(self) -> float | None:
        """The part of the training that is behind, in [0, 1]; None where nobody knows."""
        if self.options.steps is not None:
            return self.step / self.options.steps
        if self.options.seconds is not None:
            return min(self.meter.trained / self.options.seconds, 1.0)
        return None

    def evaluate(self) -> None:
        """Accuracy over the test set, shared among the ranks."""
        begun = time.perf_counter()
        right = np.array([float(correct(self.parameters, self.test))])
        self.ranks.add(right)
        self.accuracy = float(right[0]) / self.tests
        self.meter.evaluation(begun)
        log("eval", step=self.step, epoch=self.epoch(), time=self.meter.now, accuracy=self.accuracy)

    def sum_up(self, end: float, trained: float) -> int:
        digests = self.ranks.comm.allgather(hashlib.sha256(self.parameters.tobytes()).hexdigest())
        agree = len(set(digests)) == 1
        target = self.options.target
        reached = target is None or self.accuracy >= target
        step, second = self.warm if self.step > self.warm[0] else (0, 0.0)
        log(
            "summary",
            steps=self.step,
            epochs=self.epoch(),
            time=end,
            images=self.step * self.images,
            rate=(self.step - step) * self.images / (trained - second),
            loss=self.loss,
            accuracy=self.accuracy,
            ranks=len(digests),
            parameters_sha256=digests[0],
            parameters_agree=agree,
            rate_steps=self.step - step,
            time_to_target=end if target is not None and reached else None,
            target=None if target is None else f"{target:g}",
            **self.wire.facts(),
        )
        return 0 if agree and reached else 1


def main(argv: Sequence[str], comm: MPI.Intracomm) -> int:
    """Returns the exit status, the same on all ranks."""
    ranks = Ranks(comm)
    sys.excepthook = ranks.abort
    if ranks.rank:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # rank 0 speaks for all
    try:
        status = Training(read_options(argv), ranks).run()
    except BadOption as error:
        status = 2
        if ranks.rank == 0:
            print(f"train.py: {error}", file=sys.stderr, flush=True)
    comm.Barrier()  # mpirun ends the others once one rank fails: all have spoken
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], MPI.COMM_WORLD))
