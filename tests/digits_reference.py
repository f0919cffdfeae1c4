"""The training of workloads/digits/train.py once more, from its description alone: one process, float64.

Direct convolutions, one output place at a time; ReLU before the pooling; each parameter its own array. It
imports nothing of train.py; they share the definition: data file, split, sample order, initial weights,
optimizer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
DATA = Path(__file__).resolve().parent.parent / "workloads" / "digits" / "digits.npz"


def split() -> tuple[list[int], list[int]]:
    """Which images of the file are for training, which for the test: of each digit the 5th, 10th, ..."""
    seen = dict.fromkeys(range(10), 0)
    train: list[int] = []
    test: list[int] = []
    for index, label in enumerate(np.load(DATA)["labels"].tolist()):
        seen[label] += 1
        (test if seen[label] % 5 == 0 else train).append(index)
    return train, test


def order(seed: int, size: int) -> Iterator[int]:
    """The endless row of permutations."""
    epoch = 0
    while True:
        yield from np.random.RandomState([seed, epoch]).permutation(size).tolist()
        epoch += 1


def convolve(maps: Array, kernel: Array) -> Array:
    """(n, h, w, c) maps and a (3, 3, c, f) kernel give (n, h - 2, w - 2, f)."""
    n, height, width, _ = maps.shape
    out = np.empty((n, height - 2, width - 2, kernel.shape[3]))
    for y in range(height - 2):
        for x in range(width - 2):
            out[:, y, x] = np.tensordot(maps[:, y : y + 3, x : x + 3], kernel, 3)
    return out


def convolve_back(maps: Array, kernel: Array, gradient: Array) -> tuple[Array, Array]:
    """The gradients of ``convolve`` with respect to maps and kernel, given that of its output."""
    to_maps, to_kernel = np.zeros_like(maps), np.zeros_like(kernel)
    for y in range(gradient.shape[1]):
        for x in range(gradient.shape[2]):
            here = gradient[:, y, x]
            to_maps[:, y : y + 3, x : x + 3] += np.tensordot(here, kernel, (1, 3))
            to_kernel += np.tensordot(maps[:, y : y + 3, x : x + 3], here, (0, 0))
    return to_maps, to_kernel


class Network:
    def __init__(self, seed: int) -> None:
        stream = np.random.RandomState(seed)
        self.parameters: list[Array] = []
        for shape, inputs in (((3, 3, 1, 8), 9), ((3, 3, 8, 16), 72), ((144, 32), 144), ((32, 10), 32)):
            self.parameters += [
                stream.standard_normal(shape) * math.sqrt(2 / inputs),
                np.zeros(shape[-1]),
            ]
        self.velocities = [np.zeros_like(each) for each in self.parameters]

    def forward(self, images: Array) -> tuple[Array, ...]:
        k1, b1, k2, b2, w3, b3, w4, b4 = self.parameters
        first = np.maximum(convolve(images, k1) + b1, 0)
        second = np.maximum(convolve(first, k2) + b2, 0)
        blocks = second.reshape(-1, 3, 2, 3, 2, 16).transpose(0, 1, 3, 5, 2, 4).reshape(-1, 3, 3, 16, 4)
        pooled = blocks.max(axis=4).reshape(-1, 144)
        third = np.maximum(pooled @ w3 + b3, 0)
        return first, second, blocks, pooled, third, third @ w4 + b4

    def learn(self, images: Array, labels: NDArray[np.intp], rate: float) -> float:
        """One step with momentum 0.9 and weight decay 0.001; returns the mean loss before it."""
        _, _, k2, _, w3, _, w4, _ = self.parameters
        first, second, blocks, pooled, third, logits = self.forward(images)
        n = len(images)
        chances = np.exp(logits) / np.exp(logits).sum(axis=1)[:, None]
        loss = -np.log(chances[range(n), labels]).mean()
        d4 = (chances - np.eye(10)[labels]) / n
        d3 = np.where(third > 0, d4 @ w4.T, 0)
        one_of_four = np.eye(4)[blocks.argmax(axis=4)]
        d_blocks = (d3 @ w3.T).reshape(-1, 3, 3, 16, 1) * one_of_four
        d_maps = d_blocks.reshape(-1, 3, 3, 16, 2, 2).transpose(0, 1, 4, 2, 5, 3).reshape(-1, 6, 6, 16)
        d2 = np.where(second > 0, d_maps, 0)
        to_first, to_k2 = convolve_back(first, k2, d2)
        d1 = np.where(first > 0, to_first, 0)
        _, to_k1 = convolve_back(images, self.parameters[0], d1)
        gradients = [
            to_k1, d1.sum((0, 1, 2)), to_k2, d2.sum((0, 1, 2)),
            pooled.T @ d3, d3.sum(0), third.T @ d4, d4.sum(0),
        ]  # fmt: skip
        for index, gradient in enumerate(gradients):
            decay = 0.001 * self.parameters[index]
            self.velocities[index] = 0.9 * self.velocities[index] + gradient + decay
            self.parameters[index] = self.parameters[index] - rate * self.velocities[index]
        return float(loss)


def train(seed: int, global_batch: int, steps: int) -> tuple[list[float], float]:
    """The mean loss of each step, and the accuracy on the test set at the end."""
    with np.load(DATA) as file:
        images = np.pad(file["images"].astype(float), ((0, 0), (1, 1), (1, 1)))[..., None] / 8 - 1
        labels = file["labels"].astype(np.intp)
    for_training, for_test = split()
    network, row = Network(seed), order(seed, len(for_training))
    rate = 0.05 * math.sqrt(global_batch / 256)
    losses = []
    for _ in range(steps):
        batch = [for_training[next(row)] for _ in range(global_batch)]
        losses.append(network.learn(images[batch], labels[batch], rate))
    named = network.forward(images[for_test])[-1].argmax(axis=1)
    return losses, float((named == labels[for_test]).mean())
