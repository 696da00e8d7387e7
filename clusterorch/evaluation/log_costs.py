"""Here lives what reading logs costs: megabytes a second, memory, and how both grow with the size of the logs.

The logs are mixed as on a shared disk: what the simulator's writers print for incidents on several layouts, and beside
it files of lines that say nothing, nineteen bytes of them to one byte of the rest.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from clusterorch.models import load
from clusterorch.simulation.trace import simulate
from clusterorch.telemetry.patterns import Formats, load_formats
from clusterorch.telemetry.reading import read_paths
from clusterorch.telemetry.writing import write_logs

MEGABYTE = 1 << 20
SHARE_SAID = 0.05  # of the bytes, written by the simulator's writers
_LAYOUTS, _SLICES = ("1x8", "2x8", "4x8"), 120
_CHATTER = (
    "{stamp} INFO [loader-{n}] fetched shard {m:06d} of 131072 from cache in {n} ms",
    "{stamp} DEBUG worker {n}: prefetch depth {n}, {m} samples buffered",
    "{stamp} [trainer] lr 2.9e-04 | tokens {m} | tflops {n}.7 | eta 3 days",
    "Mar  4 08:{n:02d}:11 node-0003 systemd[1]: session-{m}.scope: Consumed {n}.112s CPU time.",
    "{stamp} kubelet: probe of container trainer-{n} succeeded after {n} ms, generation {m}",
)
_COUNTED = """
import json, resource, sys, time
from pathlib import Path
from clusterorch.telemetry.patterns import load_formats
from clusterorch.telemetry.reading import read_paths
formats = load_formats(json.loads(sys.argv[2]))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
read_paths([Path(sys.argv[1])], formats)
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


class LogCosts(NamedTuple):
    """Costs of reading.

    by_size: (megabytes, CPU seconds), smallest first.  grep_seconds: of `grep -c -F` with as many fixed texts as the
    formats ask for, over the largest; None without a grep.  peak, base: resident megabytes of a process that reads
    the largest, at most and before it reads.
    """

    by_size: list[tuple[float, float]]
    grep_seconds: float | None
    texts: int
    peak: float
    base: float

    @property
    def megabytes_a_second(self) -> float:
        """Of the largest."""
        size, seconds = self.by_size[-1]
        return size / seconds

    @property
    def exponent(self) -> float:
        """Time ~ size ** this."""
        sizes, seconds = np.log(np.array(self.by_size)).T
        return float(np.polyfit(sizes, seconds, 1)[0])


def written_files(folder: Path, format_files: Sequence[Path], model: str = "reference") -> list[Path]:
    """Logs of one incident a layout, as the simulator's writers print them."""
    formats, files = load_formats(format_files), []
    for number, layout in enumerate(_LAYOUTS):
        world = load(model, layout=layout)
        fault = world.variants[7 * number]
        trace = simulate(world, _SLICES, seed=number, fault=fault, at=_SLICES // 2)
        said = (world, trace.values, trace.published, trace.events)
        files += write_logs(*said, folder / layout, seed=number, formats=formats)
    return files


def make_corpus(folder: Path, megabytes: float, sources: Sequence[bytes]) -> int:
    """Fill a folder with mixed logs of about a size; the bytes written.

    Args:
        folder: made.
        megabytes: how much.
        sources: written logs, taken in turn.
    """
    folder.mkdir(parents=True)
    chatter, total, number = _chatter(), 0, 0
    while total < megabytes * MEGABYTE:
        said = sources[number % len(sources)]
        (folder / f"part-{number:05d}").write_bytes(said)
        about, parts, size = len(said) * (1.0 - SHARE_SAID) / SHARE_SAID, [], 0
        while size < about:
            parts.append(next(chatter))
            size += len(parts[-1])
        (folder / f"part-{number:05d}-more").write_bytes(b"".join(parts))
        total, number = total + len(said) + size, number + 1
    return total


def _chatter() -> Iterator[bytes]:
    number = 0
    while True:
        number += 1
        stamp = f"2025-03-04 08:{number // 60 % 60:02d}:{number % 60:02d},{number % 1000:03d}"
        text = _CHATTER[number % len(_CHATTER)].format(stamp=stamp, n=number % 60, m=number)
        yield f"{text}\n".encode()


def measure(format_files: Sequence[Path], sizes: Sequence[float] = (25, 50, 100, 200)) -> LogCosts:
    """Read mixed logs of several sizes, in megabytes."""
    formats = load_formats(format_files)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        sources = [file.read_bytes() for file in written_files(root / "written", format_files)]
        sources = [data for data in sources if data]
        make_corpus(root / "warm", 1, sources)
        read_paths([root / "warm"], formats)
        by_size = []
        for size in sizes:
            folder = root / f"logs-{size:g}"
            total = make_corpus(folder, size, sources)
            start = time.process_time()
            read_paths([folder], formats)
            by_size.append((total / MEGABYTE, time.process_time() - start))
            if size != sizes[-1]:
                shutil.rmtree(folder)
        texts = texts_asked_for(formats)
        return LogCosts(by_size, _grep_seconds(folder, texts, root / "texts"), len(texts), *_peak(folder, format_files))


def texts_asked_for(formats: Formats) -> list[str]:
    """The fixed texts of which a line must hold one to be looked at."""
    return sorted({*formats.groups, *formats.counters})


def _grep_seconds(folder: Path, texts: Sequence[str], file: Path) -> float | None:
    grep = shutil.which("grep")
    if grep is None:
        return None
    file.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    command = [grep, "-r", "-c", "-F", "-f", str(file), str(folder)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    # To the null device grep would stop at the first match of each file.
    subprocess.run(command, stdout=subprocess.PIPE, check=False, env={**os.environ, "LC_ALL": "C"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _peak(folder: Path, format_files: Sequence[Path]) -> tuple[float, float]:
    """(most, before) resident megabytes of a process of its own that reads a folder."""
    names = json.dumps([str(file) for file in format_files])
    words = [sys.executable, "-c", _COUNTED, str(folder), names]
    made = subprocess.run(words, capture_output=True, text=True, check=True)
    before, most = (int(word) / 1024.0 for word in made.stdout.split())
    return most, before
