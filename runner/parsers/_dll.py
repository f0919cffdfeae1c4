"""Parts of the lines that NVIDIA's DLLogger prints, for the families that log with it.

Schema: ``DLL DATE TIME - STEP key : value [unit]  key : value [unit] ...``. Releases differ in units: none,
``None``, ``img/s``, ``images/s``, ``%``.
"""

from __future__ import annotations

DLL = r"DLL (?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) - "
_UNIT = r"(?: (?:[A-Za-z][\w/]{0,30}|%)(?=\s|$)(?! :))?"  # a word that is not the next key
PAIR = rf"[A-Za-z_][\w.-]{{0,99}} : \S{{1,99}}{_UNIT}"
BEFORE, AFTER = rf"(?:{PAIR}\s{{1,9}}){{0,50}}?", rf"{_UNIT}(?:\s{{1,9}}{PAIR}){{0,50}}"
PAIRS = r"(?<![\w.-])([A-Za-z_][\w.-]{0,99}) : (\S+)"
