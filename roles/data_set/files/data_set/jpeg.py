"""What must be known of a JPEG file without decoding it, and a small one to make synthetic sets from."""

from __future__ import annotations

import base64
import struct
from typing import Optional, Tuple

from data_set import png

# A red rectangle on green, 96 x 64 pixels.
SAMPLE = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABQODxIPDRQSEBIXFRQYHjIhHhwcHj0sLiQySUBMS0dARkVQWnNiUFVtVkVGZIhlbXd7"
    "gYKBTmCNl4x9lnN+gXz/2wBDARUXFx4aHjshITt8U0ZTfHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8fHx8"
    "fHx8fHx8fHz/wAARCABAAGADASIAAhEBAxEB/8QAFgABAQEAAAAAAAAAAAAAAAAAAAMC/8QAFxABAAMAAAAAAAAAAAAAAAAAAARC"
    "gf/EABkBAQADAQEAAAAAAAAAAAAAAAABAgMFBP/EABoRAQABBQAAAAAAAAAAAAAAAAABBDEzQfD/2gAMAwEAAhEDEQA/ANAPKzAA"
    "AAAAAAAAAARk11BeTXUFZu7FNijtgCG4vGtiC8a2Ji7CpxT21gFnHAAAARk11BeTXUFZu7FNijtgCG4vGtiC8a2Ji7CpxT21gFnH"
    "AAAAAAAAAAAAAAf/2Q=="
)
SAMPLE_SIZE = (96, 64)
SAMPLE_BOX = (20, 16, 40, 32)  # of the rectangle: x, y, width, height
# Start of frame: all but DHT (C4), JPG (C8) and DAC (CC), ITU-T T.81 table B.1.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset((0x01, *range(0xD0, 0xD9)))  # markers without a length


def size(data: bytes) -> Optional[Tuple[int, int]]:
    """Width and height in pixels, of a PNG too: ImageNet has one. None of anything else."""
    if data.startswith(png.SIGNATURE) and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return int(width), int(height)
    place = 2 if data.startswith(b"\xff\xd8") else len(data)
    while place + 9 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker in _FRAMES:
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return int(width), int(height)
        if marker == 0xFF:  # fill
            place += 1
        elif marker in _ALONE:
            place += 2
        else:
            place += 2 + int(struct.unpack(">H", data[place + 2 : place + 4])[0])
    return None
