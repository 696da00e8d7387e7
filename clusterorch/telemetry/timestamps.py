"""Here live the shapes in which logs tell the time.

Only differences matter: wall clocks count seconds from a fixed date and ignore time zones.  Shapes without a
year are placed in `NO_YEAR` and moved once a year is known.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import NamedTuple

NO_YEAR = 2000  # a leap year, so that 29 February exists
SEARCHED = 120  # characters at the head of a line in which its time is looked for
_YEARLESS_BEFORE = 40  # further in, a date without a year is part of what the line says
_EPOCH = datetime(NO_YEAR, 1, 1)
_NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_MONTH = "(?:" + "|".join(_MONTHS) + ")"
_DAYS = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]
_DAY = "(?:" + "|".join(_DAYS) + ")"
_CLOCK = r"\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?"
_LEVEL = r"^(?:<\d{1,3}>|[a-z]{3,8} {0,4}:[a-z]{2,7} {0,4}: )?"  # as dmesg --raw and --decode put it in front
_UNIX = 946_684_800  # 2000-01-01 in seconds since 1970

_SHAPES = re.compile(
    "|".join(
        (
            rf"(?P<date>(?:19|20)\d\d[-/]\d{{1,2}}[-/]\d{{1,2}})[T ,_]{{1,2}}(?:- )?(?P<clock>{_CLOCK})"
            r"(?:Z|[+-]\d\d:?\d\d)?",
            rf"(?P<american>\d{{2}}/\d{{2}}/(?:19|20)\d{{2}}),? (?:- )?(?P<american_clock>{_CLOCK})",
            rf"(?:^|(?<=[\[ :\]]))[IWEFD](?P<glog>(?:20\d{{6}}|\d{{3,4}})) (?P<glog_clock>{_CLOCK})",
            rf"(?:{_DAY} )?(?P<ctime>{_MONTH} {{1,2}}\d{{1,2}}) (?P<ctime_clock>{_CLOCK}) "
            r"(?P<ctime_year>(?:19|20)\d\d)",
            rf"(?P<syslog>{_MONTH} {{1,2}}\d{{1,2}}) (?P<syslog_clock>{_CLOCK})",
            rf"\[(?P<minute>{_MONTH} {{0,2}}\d{{1,2}} \d{{2}}:\d{{2}})\]",
            _LEVEL + r"\[ *\+(?P<delta>\d{1,9}\.\d{3,9})\]",
            _LEVEL + r"\[ *(?P<boot>\d{1,9}\.\d{3,9})\]",
            r"^(?P<epoch>1[4-9]\d{8}\.\d{3,9})(?= )",
            r"^ ?(?P<compact>20\d{6}) {1,4}(?P<compact_clock>\d{2}:\d{2}:\d{2})",
            r"(?:^|(?<=[\[ ]))(?P<short>\d{2}-\d{2}) "
            r"(?P<short_clock>\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?)(?![\d-])",
        )
    )
)
# Most lines that tell no time fail here, cheaply.
_MAY_TELL = re.compile(r"\d:\d\d|^(?:<\d{1,3}>|[a-z]{3,8} {0,4}:[a-z]{2,7} {0,4}: )?\[ *\+?\d|^1[4-9]\d{8}\.\d{3}")


class Stamp(NamedTuple):
    """When a line says it was written, and where in the line."""

    seconds: float
    clock: str  # wall, boot or delta
    start: int
    end: int
    yearless: bool = False
    syslog: bool = False


def find_stamp(text: str) -> Stamp | None:
    """The time near the head of a line, or None.

    >>> find_stamp("[172816.440226] NVRM: ...").seconds
    172816.440226
    >>> late, early = find_stamp("E1129 11:56:57.5 x"), find_stamp("E1129 11:56:57.25 x")
    >>> late.seconds - early.seconds, late.yearless
    (0.25, True)
    """
    if _MAY_TELL.search(text, 0, SEARCHED) is None or (found := _SHAPES.search(text, 0, SEARCHED)) is None:
        return None
    start, end = found.span()
    if found["boot"]:
        return Stamp(float(found["boot"]), "boot", start, end)
    if found["delta"]:
        return Stamp(float(found["delta"]), "delta", start, end)
    if found["epoch"]:
        return Stamp(float(found["epoch"]) - _UNIX, "wall", start, end)
    try:
        year, month, day, clock = _calendar(found)
        seconds = _wall(year or NO_YEAR, month, day, clock)
    except ValueError:
        return None  # a thirteenth month or 25 o'clock: no time at all
    if year is None and start > _YEARLESS_BEFORE:
        return None
    if found["ctime"]:
        end += text[end : end + 1] == "]"  # a bracket that follows the year belongs to the stamp
    return Stamp(seconds, "wall", start, end, yearless=year is None, syslog=found["syslog"] is not None)


def _calendar(found: re.Match[str]) -> tuple[int | None, int, int, str]:
    """(year if given, month, day, clock)."""
    if found["date"]:
        year, month, day = found["date"].replace("/", "-").split("-")
        return int(year), int(month), int(day), found["clock"]
    if found["american"]:
        month, day, year = found["american"].split("/")
        return int(year), int(month), int(day), found["american_clock"]
    if found["short"]:
        month, day = found["short"].split("-")
        return None, int(month), int(day), found["short_clock"]
    if digits := found["compact"]:
        return int(digits[:4]), int(digits[4:6]), int(digits[6:]), found["compact_clock"]
    if digits := found["glog"]:
        if len(digits) == 8:
            return int(digits[:4]), int(digits[4:6]), int(digits[6:]), found["glog_clock"]
        return None, int(digits[:-2]), int(digits[-2:]), found["glog_clock"]
    words = found["ctime"] or found["syslog"] or found["minute"]
    month, day = _MONTHS[words[:3]], int(words[3:].split()[0])
    if found["ctime"]:
        return int(found["ctime_year"]), month, day, found["ctime_clock"]
    return None, month, day, found["syslog_clock"] or words.split()[-1]


def _wall(year: int, month: int, day: int, clock: str) -> float:
    hour, minute, *second = clock.replace(",", ".").split(":")
    seconds = float(second[0]) if second else 0.0
    if seconds >= 61:
        raise ValueError(clock)
    return (datetime(year, month, day, int(hour), int(minute)) - _EPOCH).total_seconds() + seconds


def time_fields(seconds: float) -> dict[str, str]:
    """A wall time in every shape that a template may ask for.

    >>> fields = time_fields(0.25)
    >>> fields["iso"], fields["glog"], fields["pytorch"], fields["syslog"]
    ('2000-01-01 00:00:00', '0101 00:00:00.250000', '101 00:00:00.250000000', 'Jan  1 00:00:00')
    """
    moment = _EPOCH + timedelta(seconds=seconds)
    clock, fraction = f"{moment:%H:%M:%S}", f"{moment.microsecond:06d}"
    month = _NAMES[moment.month - 1]
    return {
        "iso": f"{moment:%Y-%m-%d} {clock}",
        "stamp": f"{moment:%Y-%m-%d} {clock},{fraction[:3]}",
        "glog": f"{moment:%m%d} {clock}.{fraction}",
        "pytorch": f"{moment.month}{moment:%d} {clock}.{fraction}000",
        "syslog": f"{month} {moment.day:2d} {clock}",
        "ctime": f"{_DAYS[moment.weekday()]} {month} {moment.day:2d} {clock} {moment.year}",
        "smi": f"{moment:%Y/%m/%d} {clock}.{fraction[:3]}",
        "boot": f"{seconds:12.6f}",
    }


def year_of(seconds: float) -> int:
    """The year of a time on a wall clock."""
    return (_EPOCH + timedelta(seconds=seconds)).year


def in_year(seconds: float, year: int) -> float:
    """A time read without a year, moved into one.  29 February becomes 1 March where it does not exist."""
    moment = _EPOCH + timedelta(seconds=seconds)
    offset = year - NO_YEAR + (moment.year - NO_YEAR)
    start = datetime(NO_YEAR + offset, 1, 1)
    day = moment - datetime(moment.year, 1, 1)
    leap = _days(moment.year) - _days(start.year)
    if leap and (moment.month, moment.day) > (2, 29):
        day -= timedelta(days=1)
    return (start + day - _EPOCH).total_seconds()


def _days(year: int) -> int:
    return (datetime(year + 1, 1, 1) - datetime(year, 1, 1)).days


class FileClock:
    """The time within one file: sums deltas, steps into the next year, remembers the last time shown."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.last: float | None = None
        self.first: float | None = None
        self.clock = "none"
        self._yearless: float | None = None
        self._elapsed = 0.0
        self._minute: float | None = None
        self._years = 0.0

    def read(self, text: str) -> tuple[float | None, str, Stamp | None]:
        """(time, clock, stamp) of a line; every line with a delta must pass here once, in order."""
        stamp = find_stamp(text)
        if stamp is None:
            return None, "none", None
        if stamp.clock == "boot":
            return self._remember(stamp.seconds, f"boot:{self.file}", stamp)
        if stamp.clock == "delta":
            self._elapsed += stamp.seconds
            if self._minute is None:
                return self._remember(self._elapsed, f"delta:{self.file}", stamp)
            return self._remember(self._minute + self._elapsed, "wall", stamp)
        seconds = stamp.seconds
        if stamp.yearless:
            if self._yearless is not None and seconds + self._years < self._yearless - 300 * 86400:
                self._years += 366 * 86400  # December came before January
            seconds += self._years
            self._yearless = seconds
        if text[stamp.end - 1 : stamp.end] == "]" and stamp.yearless:
            self._minute, self._elapsed = seconds, 0.0
        return self._remember(seconds, "wall", stamp)

    def _remember(self, seconds: float, clock: str, stamp: Stamp) -> tuple[float, str, Stamp]:
        if clock != self.clock:
            self.first = seconds
        self.last, self.clock = seconds, clock
        return seconds, clock, stamp
