"""Prepares and checks the data sets of one host.

usage: python3 data.pyz check|make RESULT

``check`` looks, ``make`` makes what is missing. The job is in the file itself, RESULT becomes a JSON file;
"changed" is printed where something was made.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import List

from data_set import looking, prepare
from data_set.files import DataError, explained, remove, write_json


def main(words: List[str]) -> int:
    """Status 0 whatever became of the sets, which the result says; 1 where nothing could be said at all."""
    if len(words) != 2 or words[0] not in ("check", "make"):
        print(__doc__, file=sys.stderr)
        return 2
    with zipfile.ZipFile(sys.argv[0]) as program:
        asked = looking.job(json.loads(program.read("job.json")))
    try:
        found = prepare.everything(asked, make=words[0] == "make")
    except (DataError, OSError) as error:
        print(explained(error) if isinstance(error, OSError) else error, file=sys.stderr)
        return 1
    if not asked.wanted:  # nor is there anybody who would remove the program
        remove(Path(sys.argv[0]).parent)
        return 1
    write_json(Path(words[1]), {"schema": "runkit/data-result", "version": 1, **found})
    if any(each["state"] == "made" for each in found["sets"]):
        print("changed")
    return 0
