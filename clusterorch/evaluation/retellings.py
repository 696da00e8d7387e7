"""Here live other ways in which the same incident could have been logged: each takes {file: text} and gives the same.

Files are text byte by byte (latin-1), so what is no text, a dump, passes through unchanged.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

Logs = dict[str, str]
LATER = dt.timedelta(hours=7, minutes=13)
_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_MONTH = "(?P<month>" + "|".join(_MONTHS) + ")"
_CLOCK = r"(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"


def logs_of(folder: Path) -> Logs:
    """The files of a folder by their names below it, in order."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {file.relative_to(folder).as_posix(): file.read_bytes().decode("latin-1") for file in files}


def written(logs: Mapping[str, str], folder: Path) -> Path:
    """Write files into a folder, which is given back."""
    for name, text in logs.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode("latin-1"))
    return folder


def _plain(text: str) -> bool:
    """Whether a file is text and not a dump, whose parts say how long they are."""
    return "\0" not in text and not text.startswith("\x80")


def hosts_renamed(logs: Logs, hosts: Iterable[str]) -> Logs:
    """Every host under another name, in an order that turns theirs round; in names of files as well."""
    names = {host: f"zone{99 - i}" for i, host in enumerate(sorted(hosts))}

    def renamed(text: str) -> str:
        if not _plain(text):
            return text
        for host, name in names.items():
            text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", name, text)
        return text

    return {renamed(file): renamed(text) for file, text in logs.items()}


def files_renamed(logs: Logs) -> Logs:
    """Files under names that say nothing."""
    return {f"part.{i}": text for i, text in enumerate(logs.values())}


def files_turned_round(logs: Logs) -> Logs:
    """Files in the opposite order, their names kept but for a number in front."""
    return {f"{i:02d}-{file}": logs[file] for i, file in enumerate(sorted(logs, reverse=True))}


def carriage_returns(logs: Logs) -> Logs:
    """Lines that end as on another system."""
    return {file: text.replace("\n", "\r\n") if _plain(text) else text for file, text in logs.items()}


def lines_thrice(logs: Logs) -> Logs:
    """Every line three times in a row, as a fan-out to three ranks prints it; a stack so torn apart is none."""

    def thrice(text: str) -> str:
        return "".join(3 * line for line in lines_of(text))

    whole = {file for file, text in logs.items() if text.startswith("Thread ") or not _plain(text)}
    return {file: text if file in whole else thrice(text) for file, text in logs.items()}


def blocks_by_rank(logs: Logs, allowed: set[str]) -> Logs:
    """A whole file three times, each time with another rank in front of its lines."""

    def once(text: str, rank: int) -> str:
        return "".join(f"[rank{rank}]: {line}" for line in lines_of(text))

    return {f: "".join(once(text, k) for k in range(3)) if f in allowed else text for f, text in logs.items()}


def clocks_later(logs: Logs) -> Logs:
    """All clocks later by some hours; what tells no time stays."""
    return {file: later(text) for file, text in logs.items()}


def lines_of(text: str) -> list[str]:
    """Lines with their ends; bytes of a longer character are no ends."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def later(text: str) -> str:
    """One file with all its clocks later."""
    if not _plain(text):
        return text
    for pattern, change in _SHAPES.items():
        text = re.sub(pattern, change, text)
    return text


def _moment(found: re.Match[str], year: int, month: int, day: int) -> dt.datetime:
    parts: Mapping[str, str] = found.groupdict()
    return dt.datetime(year, month, day, int(parts["h"]), int(parts["m"]), int(parts["s"])) + LATER


def _dated(found: re.Match[str]) -> str:
    mark, gap = found["mark"], found["gap"]
    moment = _moment(found, int(found["year"]), int(found["mon"]), int(found["day"]))
    return f"{moment:%Y}{mark}{moment:%m}{mark}{moment:%d}{gap}{moment:%H:%M:%S}"


def _glog(found: re.Match[str]) -> str:
    return f"{found['level']}{_moment(found, 2023, int(found['mon']), int(found['day'])):%m%d %H:%M:%S}"


def _glog_of_year(found: re.Match[str]) -> str:
    moment = _moment(found, int(found["year"]), int(found["mon"]), int(found["day"]))
    return f"{found['level']}{moment:%Y%m%d %H:%M:%S}"


def _ctime(found: re.Match[str]) -> str:
    moment = _moment(found, int(found["year"]), _MONTHS.index(found["month"]) + 1, int(found["day"]))
    return f"{moment:%a} {_MONTHS[moment.month - 1]} {moment.day:2d} {moment:%H:%M:%S %Y}"


def _syslog(found: re.Match[str]) -> str:
    moment = _moment(found, 2023, _MONTHS.index(found["month"]) + 1, int(found["day"]))
    return f"{_MONTHS[moment.month - 1]} {moment.day:2d} {moment:%H:%M:%S}"


def _boot(found: re.Match[str]) -> str:
    return f"[{float(found['boot']) + LATER.total_seconds():13.6f}]"


_SHAPES: dict[str, Callable[[re.Match[str]], str]] = {
    rf"(?P<year>20\d\d)(?P<mark>[-/])(?P<mon>\d\d)(?P=mark)(?P<day>\d\d)(?P<gap>[ T]){_CLOCK}": _dated,
    rf"(?P<level>(?:^|(?<=[\[\n]))[IWEF])(?P<year>20\d\d)(?P<mon>\d\d)(?P<day>\d\d) {_CLOCK}": _glog_of_year,
    rf"(?P<level>(?:^|(?<=[\[\n]))[IWEF])(?P<mon>\d\d)(?P<day>\d\d) {_CLOCK}": _glog,
    rf"[A-Z][a-z][a-z] {_MONTH} +(?P<day>\d\d?) {_CLOCK} (?P<year>20\d\d)": _ctime,
    rf"(?:^|(?<=\n)){_MONTH} +(?P<day>\d\d?) {_CLOCK}(?= \w)": _syslog,
    r"(?:^|(?<=\n))\[ *(?P<boot>\d{1,9}\.\d{6})\]": _boot,
}
