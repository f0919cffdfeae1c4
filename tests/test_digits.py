"""The embedded workload: trainings under the real mpirun, against a second implementation and arithmetic."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import digits_reference as reference
import numpy as np
import pytest

from runner import parsers
from runner.model import Line

ROOT = Path(__file__).resolve().parent.parent
DIGITS = ROOT / "workloads" / "digits"
TRAIN = DIGITS / "train.py"
WIRE = ROOT / "tests" / "programs" / "digits_wire.py"
MPIRUN = Path(sys.executable).parent / "mpirun"
ENVIRONMENT = {
    **os.environ,
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
GLOBAL_BATCH = 256
STEPS = 45

Done = subprocess.CompletedProcess[str]


def load_train() -> ModuleType:
    spec = importlib.util.spec_from_file_location("train", TRAIN)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")  # train.py sets it where it is not set
        spec.loader.exec_module(module)
    return module


train: Any = load_train()


def mpirun(*groups: tuple[int, list[str]]) -> Done:
    """Start ``count`` ranks of each ``(count, argv)``; mpirun ends what takes too long, or is ended."""
    argv = [str(MPIRUN), "--timeout", "90", "--bind-to", "none"]
    argv += ["--mca", "btl", "self,sm", "--mca", "mpi_yield_when_idle", "1"]
    for count, command in groups:
        argv += ["-np", str(count), "--host", "localhost:32", sys.executable, *command, ":"]
    done = subprocess.run(argv[:-1], env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert "limit for job execution" not in done.stderr, done.stdout + done.stderr
    return done


@cache
def run(ranks: int, *options: str) -> str:
    """The log of a training that goes well."""
    done = mpirun((ranks, [str(TRAIN), *options]))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


Event = tuple[str, dict[str, str]]


def events(log: str) -> list[Event]:
    """Each line as its event and its words, by a reading of logfmt that shares nothing with train.py."""
    found = []
    for line in log.splitlines():
        assert re.fullmatch(r'runkit [a-z]+( [a-z0-9_]+=("[^"]* [^"]*"|[^\s"]+))+', line), line
        words = re.findall(r'([a-z0-9_]+)=(?:"([^"]*)"|(\S+))', line)
        found.append((line.split()[1], {key: quoted or plain for key, quoted, plain in words}))
    return found


def of(log: str, event: str) -> list[dict[str, str]]:
    return [words for name, words in events(log) if name == event]


def column(log: str, event: str, key: str) -> np.ndarray[Any, Any]:
    return np.array([float(words[key]) for words in of(log, event)])


# --- data ----------------------------------------------------------------------------------


def test_data_are_the_published_ones() -> None:
    with np.load(train.DATA, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    assert images.shape == (1797, 8, 8)
    assert (images.min(), images.max(), images.dtype) == (0, 16, np.uint8)
    # The counts that optdigits.names of the UCI repository states for optdigits.tes.
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    stated = re.findall(r"^\| SHA-256 of .*?`([0-9a-f]{64})`", (DIGITS / "DATA.md").read_text(), re.M)
    assert stated[1:] == [
        hashlib.sha256(Path(train.DATA).read_bytes()).hexdigest(),
        hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest(),
    ]


def test_no_test_image_is_for_training() -> None:
    with np.load(train.DATA, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    indices = reference.split()
    assert [len(part) for part in indices] == [1442, 355]
    assert sorted(chain(*indices)) == list(range(1797))
    for part, index in zip(train.load(), indices, strict=True):
        assert (part.labels == labels[index]).all()
        assert (part.images[:, 1:9, 1:9, 0] * 8 + 8 == images[index]).all()
        margin = part.images.copy()
        margin[:, 1:9, 1:9] = -1
        assert (margin == -1).all()


@pytest.mark.parametrize("size", [7, 5, 1])
def test_shares_of_the_ranks_make_up_the_sample_order(size: int) -> None:
    """Batches of ``size`` from a set of 10: shares, steps and epochs follow each other without a gap."""
    shares = [train.sample(3, first, size, 10) for first in range(0, 60 * size, size)]
    row = np.concatenate(shares).tolist()
    expected = reference.order(3, 10)
    assert row == [next(expected) for _ in row]
    for epoch in range(len(row) // 10):
        assert sorted(row[epoch * 10 : epoch * 10 + 10]) == list(range(10))


# --- mathematics ---------------------------------------------------------------------------


def test_gradients_are_central_differences() -> None:
    stream = np.random.RandomState(5)
    digits, _ = train.load()
    images, labels = digits.images[:12].astype(float), digits.labels[:12]
    parameters = train.initial_parameters(5) + 0.01 * stream.standard_normal(train.PARAMETERS)
    _, gradient = train.loss_and_gradient(parameters, images, labels)
    assert gradient.dtype == float
    for part in train.views(np.arange(train.PARAMETERS)):
        for index in stream.choice(part.ravel(), min(part.size, 60), replace=False):
            step = np.zeros_like(parameters)
            step[index] = 1e-6
            above, below = (train.loss_and_gradient(parameters + s, images, labels)[0] for s in (step, -step))
            assert gradient[index] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-7)


@cache
def second_implementation() -> tuple[list[float], float]:
    return reference.train(1, GLOBAL_BATCH, STEPS)


def curve(ranks: int) -> str:
    size = GLOBAL_BATCH // ranks
    return run(ranks, "--steps", str(STEPS), "--batch-size", str(size), "--log-every", "1", "--seed", "1")


@pytest.mark.parametrize("ranks", [1, 8, 32])
def test_any_number_of_ranks_learns_as_the_reference(ranks: int) -> None:
    losses, accuracy = second_implementation()
    log = curve(ranks)
    assert column(log, "step", "loss") == pytest.approx(losses, rel=1e-4)
    assert losses[-1] < losses[0] / 20
    assert column(log, "summary", "accuracy") == pytest.approx([accuracy], abs=1.5 / 355)
    assert (of(log, "start")[0]["cards"], of(log, "summary")[0]["ranks"]) == (str(ranks), str(ranks))


@pytest.mark.parametrize(
    ("ranks", "size", "steps", "precision"),
    [
        pytest.param(1, 8, 2000, "fp32", id="global batch 8"),
        pytest.param(2, 32, 400, "fp16", id="global batch 64"),
        pytest.param(4, 64, 120, "fp32", id="global batch 256"),
        pytest.param(2, 512, 100, "fp16", id="global batch 1024"),
    ],
)
def test_accuracy(ranks: int, size: int, steps: int, precision: str) -> None:
    log = run(ranks, "--batch-size", str(size), "--steps", str(steps), "--precision", precision)
    assert float(of(log, "summary")[0]["accuracy"]) >= 0.97


# --- what goes between the ranks -----------------------------------------------------------


@cache
def wire(precision: str) -> dict[str, Any]:
    options = ["--steps", "12", "--log-every", "4", "--batch-size", "16", "--precision", precision]
    done = mpirun((3, [str(WIRE), *options]))
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


@pytest.mark.parametrize(("precision", "size"), [("fp32", 4), ("fp16", 2)])
def test_one_all_reduce_a_step_and_a_small_one_a_line(precision: str, size: int) -> None:
    gradient, line, right = [6218, size], [3, 8], [1, 8]
    assert wire(precision)["sent"] == [*([*[gradient] * 4, line] * 3), right]


def test_halves_are_added_exactly_even_in_parts() -> None:
    assert wire("fp16")["halves"] == [[True] * 4] * 3


def test_all_ranks_skip_the_step_that_overflows_on_one() -> None:
    assert wire("fp16")["overflows"] == [[True, 32768.0]] * 3


def test_loss_scale() -> None:
    half = train.HalfWire(1024.0)
    gradient = np.array([1.0, -0.375, 2.0**-30, 0.0], np.float32)
    message = half.pack(gradient)
    assert message.dtype == np.float16
    assert half.unpack(message).tolist() == gradient.tolist()  # 2**-30 is too small for a half by itself
    for broken in (np.inf, -np.inf, np.nan):
        assert half.unpack(np.array([1, broken], np.float16)) is None
    assert (half.scale, half.skipped) == (128.0, 3)
    for _ in range(train.SCALE_STEPS):
        assert half.scale == 128.0
        half.unpack(message)
    assert half.scale == 256.0
    half.scale = 1.0
    assert half.unpack(np.array([np.inf], np.float16)) is None
    assert half.scale == 1.0


def test_training_survives_overflow() -> None:
    """The gradients begin near 1, a half ends at 65504: from a scale of 2**30 on, some 14 steps overflow."""
    options = ("--precision", "fp16", "--loss-scale", str(2**30), "--steps", "60", "--log-every", "1")
    log = run(4, *options, "--batch-size", "64")
    (summary,) = of(log, "summary")
    skipped = int(summary["skipped_steps"])
    assert 8 <= skipped <= 20
    assert float(summary["loss_scale"]) == 2.0 ** (30 - skipped)
    assert summary["parameters_agree"] == "true"
    losses = column(log, "step", "loss")
    digits, _ = train.load()
    for step in range(8):  # nothing is learned while it overflows
        batch = train.sample(1, step * GLOBAL_BATCH, GLOBAL_BATCH, 1442)
        loss, _ = train.loss_and_gradient(
            train.initial_parameters(1), digits.images[batch], digits.labels[batch]
        )
        assert losses[step] == pytest.approx(loss / GLOBAL_BATCH, rel=1e-5)
    assert losses[-1] < losses[0] / 20


def test_different_parameters_are_found() -> None:
    options = ["--steps", "3", "--batch-size", "8"]
    done = mpirun((2, [str(TRAIN), *options]), (1, [str(TRAIN), *options, "--seed", "2"]))
    assert done.returncode == 1
    assert of(done.stdout, "summary")[0]["parameters_agree"] == "false"


def test_equal_parameters_have_the_checksum_of_equal_trainings() -> None:
    options = ("--steps", "3", "--batch-size", "8")
    first, again, other = (
        of(run(3, *options, "--warmup-steps", str(warm), "--seed", seed), "summary")[0]
        for warm, seed in ((0, "1"), (1, "1"), (0, "2"))
    )
    assert first["parameters_agree"] == other["parameters_agree"] == "true"
    assert first["parameters_sha256"] == again["parameters_sha256"] != other["parameters_sha256"]


def test_a_rank_that_fails_ends_all(tmp_path: Path) -> None:
    """One of two ranks meets a label 10 on its way; the other waits for it in an all-reduce."""
    with np.load(train.DATA, allow_pickle=False) as file:
        images, labels = file["images"], file["labels"]
    labels[reference.split()[0][7]] = 10
    np.savez(tmp_path / "digits.npz", images=images, labels=labels)
    shutil.copy(TRAIN, tmp_path)
    options = ["--seconds", "60", "--batch-size", "8"]
    done = mpirun((1, [str(TRAIN), *options]), (1, [str(tmp_path / "train.py"), *options]))
    assert done.returncode != 0
    assert "IndexError" in done.stderr
    assert "summary" not in done.stdout


# --- log -----------------------------------------------------------------------------------

SECONDS = r"\d+\.\d{6}"
PER_STEP = r"\d+\.\d{9}"
STEP = (
    rf"runkit step step=\d+ epoch=\d+ time={SECONDS} loss=\d+\.\d{{8}} step_time={PER_STEP} rate=\d+\.\d{{3}}"
    rf" compute={PER_STEP} allreduce={PER_STEP}"
)
GRAMMAR = [
    r"runkit start workload=digits started=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ cards=4 hosts=1 batch_size=64"
    r" global_batch=256 precision=fp32 unit=images/sec seed=1 model=cnn framework=NumPy"
    r' framework_version=[\d.]+ mpi="[^"]+" train_images=1442 test_images=355 parameters=6218',
    rf"({STEP} done=[01]\.\d{{4}}\n)+runkit eval step=120 epoch=21 time={SECONDS} accuracy=0\.9\d{{5}}",
    rf"runkit summary steps=120 epochs=21 time={SECONDS} images=30720 rate=\d+\.\d{{3}} loss=\d+\.\d{{8}}"
    r" accuracy=0\.9\d{5} ranks=4 parameters_sha256=[0-9a-f]{64} parameters_agree=true rate_steps=110",
]


def test_log_grammar() -> None:
    log = run(4, "--batch-size", "64", "--steps", "120", "--precision", "fp32")
    assert re.fullmatch("\n".join(GRAMMAR) + "\n", log), log


def test_log_is_read_by_its_parser() -> None:
    log = run(4, "--batch-size", "64", "--steps", "120", "--precision", "fp32")
    lines = [Line(number, text) for number, text in enumerate(log.splitlines(), 1)]
    (read,) = parsers.parse(lines, "digits.log")
    assert (read.family, read.complete, read.problems) == ("runkit", True, ())
    assert (read.cards, read.hosts, read.batch_size, read.precision) == (4, 1, 64, "fp32")
    assert read.rates["summary"]["rate"] == float(of(log, "summary")[0]["rate"])
    assert [record.loss for record in read.records] == column(log, "step", "loss").tolist()


def test_rates_are_images_over_time() -> None:
    log = curve(8)
    step_time = column(log, "step", "step_time")
    assert column(log, "step", "rate") * step_time == pytest.approx(GLOBAL_BATCH, rel=1e-5)
    assert (column(log, "step", "compute") + column(log, "step", "allreduce") <= step_time).all()
    assert column(log, "step", "done") == pytest.approx(np.arange(1, STEPS + 1) / STEPS, abs=1e-4)
    (summary,) = of(log, "summary")
    assert step_time.sum() == pytest.approx(float(summary["time"]), abs=2e-6)
    assert int(summary["rate_steps"]) == STEPS - 10
    images = (STEPS - 10) * GLOBAL_BATCH
    assert images / float(summary["rate"]) == pytest.approx(step_time[10:].sum(), rel=1e-5)


def test_lines_come_some_times_a_second() -> None:
    log = run(1, "--seconds", "2", "--batch-size", "8")
    (summary,) = of(log, "summary")
    steps, times = column(log, "step", "step"), column(log, "step", "time")
    assert 2 <= float(summary["time"]) < 4
    assert column(log, "step", "done")[-1] == 1
    gaps = [later - earlier for earlier, later in pairwise(steps.tolist())]
    assert gaps == sorted(gaps)  # the interval only grows,
    assert gaps[-1] > 10  # to more than a few steps here,
    assert np.diff(times)[-1] < 1  # and a line is never long in coming


def test_time_to_target_is_the_first_evaluation_that_has_it() -> None:
    log = run(2, "--target", "0.97", "--batch-size", "32", "--precision", "fp16")
    evaluations, (summary,) = of(log, "eval"), of(log, "summary")
    assert [int(each["epoch"]) for each in evaluations] == list(range(1, len(evaluations) + 1))
    assert [float(each["accuracy"]) >= 0.97 for each in evaluations] == [False] * (len(evaluations) - 1) + [
        True
    ]
    assert summary["accuracy"] == evaluations[-1]["accuracy"]
    assert summary["target"] == "0.97"
    assert summary["time_to_target"] == summary["time"]
    assert summary["time"] == evaluations[-1]["time"]
    for each in evaluations:  # at the first step at or beyond the end of the epoch
        assert int(each["step"]) == -(-int(each["epoch"]) * 1442 // 64)
    assert "done" not in of(log, "step")[0]


def test_evaluations_take_time_but_no_step_time() -> None:
    log = run(2, "--target", "0.97", "--batch-size", "32", "--precision", "fp16", "--log-every", "1")
    ends = dict(zip(column(log, "eval", "step"), column(log, "eval", "time"), strict=True))
    times, step_times = column(log, "step", "time"), column(log, "step", "step_time")
    for index, step in enumerate(column(log, "step", "step")[:-1]):
        apart, step_time = times[index + 1] - times[index], step_times[index + 1]
        if step in ends:  # the next line comes an evaluation later, which is over when its line is printed
            assert 1e-4 < apart - step_time <= ends[step] - times[index] + 2e-6
        else:
            assert step_time == pytest.approx(apart, abs=2e-6)


def test_a_target_out_of_reach_fails() -> None:
    done = mpirun((1, [str(TRAIN), "--target", "1", "--max-epochs", "2"]))
    assert done.returncode == 1
    (summary,) = of(done.stdout, "summary")
    assert (summary["epochs"], len(of(done.stdout, "eval"))) == ("2", 2)
    assert "time_to_target" not in summary


def test_values_with_spaces_are_quoted() -> None:
    words = {"a": 'Open "MPI"\n5', "b": None, "c": True, "rate": 1.23456, "d": 7}
    assert train.line("start", words) == "runkit start a=\"Open 'MPI' 5\" c=true rate=1.235 d=7"


# --- options -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("", "--steps --seconds --target"),
        ("--steps 5 --seconds 5", "--seconds"),
        ("--steps 0", "--steps"),
        ("--steps -3", "--steps"),
        ("--steps 99999999999999999999", "--steps"),
        ("--seconds nan", "--seconds"),
        ("--seconds soon", "--seconds"),
        ("--target 1.01", "--target"),
        ("--target 0", "--target"),
        ("--steps 5 --batch-size 2000", "--batch-size"),
        ("--steps 5 --batch-size 1.5", "--batch-size"),
        ("--steps 5 --precision amp", "--precision"),
        ("--steps 5 --seed -1", "--seed"),
        ("--steps 5 --seed 4294967296", "--seed"),
        ("--steps 5 --log-every 0", "--log-every"),
        ("--steps 5 --warmup-steps x", "--warmup-steps"),
        ("--steps 5 --max-epochs 5", "--max-epochs"),
        ("--steps 5 --loss-scale 8", "--loss-scale"),
        ("--steps 5 --sed 3", "--sed"),
    ],
)
def test_bad_options(options: str, named: str) -> None:
    with pytest.raises(train.BadOption) as caught:
        train.read_options(options.split())
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bad_option_is_one_line_from_one_rank() -> None:
    done = mpirun((4, [str(TRAIN), "--steps", "none"]))
    assert done.returncode == 2
    assert done.stdout == ""
    assert [line for line in done.stderr.splitlines() if "train.py" in line] == [
        "train.py: argument --steps: 'none' is not a whole number from 1 to 1000000000"
    ]


def test_help_comes_once() -> None:
    done = mpirun((2, [str(TRAIN), "--help"]))
    assert (done.returncode, done.stdout.count("--batch-size")) == (0, 1)


def test_runs_without_mpirun() -> None:
    done = subprocess.run(
        [sys.executable, str(TRAIN), "--steps", "3"],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert [event for event, _ in events(done.stdout)] == ["start", "step", "step", "step", "eval", "summary"]
    assert of(done.stdout, "start")[0]["cards"] == "1"


def test_runs_on_the_python_of_the_hosts() -> None:
    tree = ast.parse(TRAIN.read_text(), feature_version=(3, 8))
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    } | {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported - sys.stdlib_module_names == {"numpy", "mpi4py"}
