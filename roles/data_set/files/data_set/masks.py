"""Instance masks of COCO annotations: outlines and run lengths become PNG images of zeros and ones.

A pixel belongs to a mask as in the COCO API (cocodataset/cocoapi, common/maskApi.c), which the upstream
script uses: the outline is followed at five times the resolution, and where it passes the middle of a pixel
column, the column changes between outside and inside.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any, Iterator, List, Sequence, Tuple

from data_set import png
from data_set.files import DataError

_SCALE = 5
_FAR = 1 << 16  # pixels; every step along an outline is a point in memory
_MIDDLE = 2  # of five: where the middle of a pixel lies


def encoded(segmentation: Any, width: int, height: int, name: str) -> bytes:
    """The PNG of one annotation's ``segmentation``. Raises DataError that calls it ``name``."""
    columns = bytearray(width * height)  # column after column, as COCO counts pixels
    try:
        for edges in _edges(segmentation, width, height):
            for start, end in zip(edges[::2], edges[1::2]):
                columns[start:end] = b"\1" * (end - start)
    except (TypeError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise DataError(f"{name}: its segmentation is neither polygons nor run lengths ({error})") from error
    if len(columns) != width * height:
        raise DataError(f"{name}: its segmentation is larger than its image")
    pixels = b"".join(columns[y::height] for y in range(height))
    return png.gray(png.Gray(width, height, pixels))


def _edges(segmentation: Any, width: int, height: int) -> Iterator[List[int]]:
    """Where runs of ones begin and end, in turn, for each part of a mask."""
    if isinstance(segmentation, dict):
        if [int(n) for n in segmentation["size"]] != [height, width]:
            raise ValueError("its size is not the image's")
        runs = [int(n) for n in segmentation["counts"]]
        if min(runs, default=0) < 0 or sum(runs) > width * height:
            raise ValueError("its runs are not in its image")
        yield list(accumulate(runs))
        return
    for outline in segmentation:
        points = list(zip(map(float, outline[::2]), map(float, outline[1::2])))
        if not all(abs(at) < _FAR for point in points for at in point):
            raise ValueError("a corner lies far beyond its image")
        yield sorted((*_crossings(points, width, height), width * height))


def _crossings(points: Sequence[Tuple[float, float]], width: int, height: int) -> Iterator[int]:
    """The pixels, counted along columns, at which the outline of a polygon changes its column."""
    corners = [(int(_SCALE * x + 0.5), int(_SCALE * y + 0.5)) for x, y in points]
    walk = [point for a, b in zip(corners, corners[1:] + corners[:1]) for point in _line(a, b)]
    for (x0, y0), (x1, y1) in zip(walk, walk[1:]):  # noqa: RUF007 - pairwise is younger than Python 3.8
        left = min(x0, x1)
        if x0 == x1 or left % _SCALE != _MIDDLE or not 0 <= left // _SCALE < width:
            continue
        y = (min(y0, y1) + 0.5) / _SCALE - 0.5
        yield left // _SCALE * height + math.ceil(min(max(y, 0), height))


def _line(a: Tuple[int, int], b: Tuple[int, int]) -> List[Tuple[int, int]]:
    """The points from a to b, both included, a step each along the longer side; the same as from b to a."""
    (xa, ya), (xb, yb) = a, b
    steep = abs(yb - ya) > abs(xb - xa)
    if steep:
        xa, ya, xb, yb = ya, xa, yb, xb
    flipped = xa > xb
    if flipped:
        xa, ya, xb, yb = xb, yb, xa, ya
    slope = (yb - ya) / (xb - xa) if xb > xa else 0.0
    line = [(xa + step, int(ya + slope * step + 0.5)) for step in range(xb - xa + 1)]
    if steep:
        line = [(x, y) for y, x in line]
    return line[::-1] if flipped else line
