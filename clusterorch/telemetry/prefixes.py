"""Here live the dialects in which launchers, loggers and libraries put the speaker in front of a line."""

from __future__ import annotations

import re
from typing import NamedTuple

from clusterorch.telemetry.timestamps import Stamp

_MOST_PREFIXES = 10
_HOST = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,253}"
_PREFIX = re.compile(
    "|".join(
        (
            r"\[rank ?(?P<rank>\d{1,6})\]:? ?",
            r"\[[A-Za-z_]{1,32}(?P<local>\d{1,4})\]:",
            r"\[[A-Za-z_]{1,32}-(?P<worker>\d{1,6})\]:",
            r"\[\d{1,6},(?P<mpi>\d{1,6})\]<std(?:out|err|diag)>: ?",
            r"\([A-Za-z_][\w.:-]{0,80} pid=(?P<pid>\d{1,9})(?:, ip=(?P<address>[0-9a-f.:]{2,45}))?\)",
            rf"\[?(?P<host>[A-Za-z]{_HOST}):(?P<process>\d{{1,9}})(?::\d{{1,9}}){{1,2}}"
            r"(?:\]|(?: \[(?P<device>-?\d{1,4})\])?(?= ))",
            r"\[(?:PG (?P<group>[^\[\]]{0,120}) )?Rank (?P<group_rank>\d{1,6})\]:?",
            r"\[(?:INFO|WARNING|WARN|ERROR|DEBUG)\]",
            r"std(?:out|err) [FP] ",
            r"\[[\w./-]{1,80}\.(?:py|cpp|cc|cu|c):\d{1,6}(?::\w{1,80})?\]",
            r"(?:> ?)?rank (?P<word_rank>\d{1,6})(?=[: ]):?",
            rf"(?P<launcher>{_HOST}-\d{{1,5}}): ",
        )
    )
)
_GLOG = re.compile(r"\[?(?:[IWEF] )?[\w./+-]{0,120}\.(?:cpp|cc|py|cu|go|c|h|hpp):\d{1,6}\]:? ?")
# A number behind a time is a thread only where the place in a source file follows; in a listing it is a size.
_AFTER_TIME = re.compile(
    r"[\],:]{0,3}(?: {1,8}\d{1,16}(?= {1,8}[\w./+-]{1,120}:\d{1,6}\]))?(?: {1,8}(?=[\w./+-]{1,120}:\d{1,6}\]))?"
)
_SYSLOG = re.compile(
    rf" (?P<host>{_HOST}) (?:(?:(?:EMERG|ALERT|CRIT|ERR|WARNING|NOTICE|INFO|DEBUG) )?"
    r"(?:[\w./#-]{1,64}(?:\[\d{1,9}\])?): ?|(?=%[A-Z]))"
)
# Where a time with a date or a clock of its own stands in front, only what daemons write tells a host from a word.
_JOURNAL = re.compile(
    rf"(?: [A-Z]{{2,5}})? (?P<host>{_HOST}) "
    r"(?:kernel|[\w./@-]{1,64}\[\d{1,9}\]|systemd|opensm|mmfs|nvidia-[a-z]{3,20}): ?"
)
_RFC5424 = re.compile(rf" (?P<host>{_HOST}|-) \S{{1,48}} \S{{1,128}} \S{{1,32}} (?:-|\[[^\]]{{0,400}}\]) ?")
_BEFORE_TIME = re.compile(
    r"(?:<\d{1,3}>(?:\d )?|[a-z]{3,8} {0,4}:[a-z]{2,7} {0,4}: \[?|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) |20\d\d )?$"
)
_REPEATED = re.compile(r" ?\[repeated (?P<times>\d{1,9})x across cluster\]")
_OPENING = ("", "[", "(", "<")
_DEFAULT_GROUP = re.compile(r"(?:ID )?0\b|.{0,100}default_pg")


class Body(NamedTuple):
    """A line without its prefixes, and what they said."""

    text: str
    context: dict[str, str]


def peel(text: str, stamp: Stamp | None) -> Body:
    """Take time, host, process and rank off the head of a line.

    >>> peel("[rank3]:   File x", None)
    Body(text='  File x', context={'rank': '3'})
    >>> peel("n17:8123:8502 [3] NCCL INFO x", None).context
    {'host': 'n17', 'pid': '8123', 'local': '3'}
    """
    context: dict[str, str] = {}
    if "[repeated " in text and (repeated := _REPEATED.search(text)):
        context["repeated"] = repeated["times"]
        text = text[: repeated.start()] + text[repeated.end() :]
    at, timed = 0, stamp is None
    for _ in range(_MOST_PREFIXES):
        start = at
        while start < len(text) and text[start] == " " and (at == 0 or start - at < 2):
            start += 1
        if stamp is not None and not timed and _opens(text, start, stamp.start):
            timed, at = True, _past_time(text, stamp, context)
            continue
        found = _GLOG.match(text, start) or _PREFIX.match(text, start)
        if found is None:
            break
        _note(found.groupdict() if found.re is _PREFIX else {}, context)
        at = found.end()
    return Body(text[at:] if at else text, context)


def _opens(text: str, start: int, end: int) -> bool:
    """Whether what stands before a time belongs to it."""
    return text[start:end] in _OPENING or (end - start < 40 and _BEFORE_TIME.match(text[start:end]) is not None)


def _past_time(text: str, stamp: Stamp, context: dict[str, str]) -> int:
    shape = _SYSLOG if stamp.syslog else _RFC5424 if text[:1] == "<" and text[stamp.start - 1] == " " else _JOURNAL
    if host := shape.match(text, stamp.end):
        if host["host"] != "-":
            context.setdefault("host", host["host"])
        return host.end()
    after = _AFTER_TIME.match(text, stamp.end)
    return after.end() if after else stamp.end


def _note(found: dict[str, str | None], context: dict[str, str]) -> None:
    if rank := found.get("rank") or found.get("mpi"):
        context["rank"] = rank
    if group := found.get("group"):
        context["group"] = group
    # A process group counts its members from zero: only in the default group is that the rank of the job.
    own = found.get("group_rank") if not group or _DEFAULT_GROUP.match(group) else None
    if rank := own or found.get("word_rank"):
        context.setdefault("rank", rank)
    if found.get("launcher"):
        context.setdefault("host", found["launcher"] or "")
    if found.get("address"):
        context.setdefault("host", found["address"] or "")
    if found.get("host"):
        context["host"] = found["host"] or ""
    if found.get("process") or found.get("pid"):
        context["pid"] = found.get("process") or found.get("pid") or ""
    local = found.get("local") or found.get("device")
    if local and not local.startswith("-"):
        context["local"] = local
