"""Parts of the lines that NVIDIA's DLLogger writes, for the families that log with it.

On standard output, and in the JSON file that the programs keep beside it (``raport.json``, ``log.json``,
``dllogger.json``), whose keys before ``data`` stand in another order in each release::

    DLL DATE TIME - STEP key : value [unit]  key : value [unit] ...
    DLLL {"timestamp": "SECONDS", "datetime": "DATE TIME", "elapsedtime": "S", "type": "LOG", "step": STEP,
          "data": {"key": value, ...}}

STEP is as each program writes it, in JSON a list of numbers, or ``"PARAMETER"`` where ``data`` are settings.
Releases differ in units: none, ``None``, ``img/s``, ``images/s``, ``%``; the JSON lines have none.
"""

from __future__ import annotations

from runner.parsers._engine import FIGURE

DLL = r"DLL (?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?) - "
_UNIT = r"(?: (?:[A-Za-z][\w/]{0,30}|%)(?=\s|$)(?! :))?"  # a word that is not the next key
PAIR = rf"[A-Za-z_][\w.-]{{0,99}} : \S{{1,99}}{_UNIT}"
BEFORE, AFTER = rf"(?:{PAIR}\s{{1,9}}){{0,50}}?", rf"{_UNIT}(?:\s{{1,9}}{PAIR}){{0,50}}"
PAIRS = r"(?<![\w.-])([A-Za-z_][\w.-]{0,99}) : (\S+)"

JSON_PAIRS = r'"([A-Za-z_][\w.-]{0,99})": ?("[^"]{0,99}"|[\w.+-]{1,60})'
JSON_WORD = "DLLL {"
_STRING = r'"(?:[^"\\]|\\.)*"'
_LIST = rf"\[(?:[^\[\]\"]|{_STRING}|\[[^\[\]\"]*\])*\]"
_OBJECT = rf"\{{(?:[^{{}}\[\]\"]|{_STRING}|{_LIST})*\}}"
_ENTRY = rf"{_STRING}: ?(?:{_STRING}|{_LIST}|{_OBJECT}|[^\"\[\]{{}},]{{1,60}})"
_STAMP = r'(?=.{0,400}?"datetime": ?"(?P<stamp>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{1,9})?)")'


def json_line(step: str, key: str = "", value: str = FIGURE, more: str = "") -> str:
    """Give the grammar of a JSON line: its step, a key of its data with the value's, what else must hold."""
    data = rf'[^{{}}]*?"{key}": ?{value}[,}}]' if key else ""
    at = rf'(?=.{{0,400}}?"step": ?{step}, ?"data": ?\{{{data})'
    return rf"DLLL (?=\{{){_STAMP}{at}{more}\{{{_ENTRY}(?:, ?{_ENTRY}){{3,9}}\}}"


# What looks like a record that broke off: in its head, or behind the step in a key (a unit is no key).
_STEP = r"(?:T[a-z]{0,7} ?)?(?:E[poch]{0,4}:? ?\d{0,9} ?)?(?:(?:Training )?I[a-z]{0,8}:? ?)?"
TORN_HEAD = rf"^\s*DLL [\d:. -]{{0,40}}{_STEP}$|^\s*DLLL (?:.*[^}}\s])?\s*$"
_KEY = r"(?<! :)\s(?!s\b|sec\b)[a-z]{1,20}|\s[a-z]\w{0,40}[._][\w.]{0,60}|\s[A-Za-z_][\w.]{0,60} :"
TORN = rf"(?:\s{{0,9}}\S{{0,20}}|.{{0,4000}}?(?:{_KEY}))\s{{0,9}}$"


def json_near(step: str, key: str) -> str:
    """Give what looks like a JSON record, whole or not: its step, and the key with a value behind it."""
    return rf'^\s*DLLL .{{0,400}}"step": ?{step}.{{0,4000}}?"{key}": '


def json_says(key: str, value: str) -> str:
    """Give a look ahead, for ``more``: the settings have ``key`` with ``value``."""
    return rf'(?=.{{0,20000}}?[{{ ]"{key}": ?{value}[,}}])'
