"""Here lives the command line of the pictures of kept results: `python -m clusterorch.figures`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from clusterorch.figures.learning_curves import SUFFIXES, draw_learning_curves

RESULTS = Path("data/results")


def parser() -> argparse.ArgumentParser:
    """The pictures and their options."""
    made = argparse.ArgumentParser(prog="python -m clusterorch.figures", description=__doc__)
    pictures = made.add_subparsers(dest="picture", required=True)
    learning = pictures.add_parser("learning", help="curves of a study of learning")
    learning.add_argument("--result", type=Path, default=RESULTS / "learning" / "learning.json", help="what was kept")
    learning.add_argument("--out", type=Path, default=RESULTS / "learning" / "curves.png", help=" or ".join(SUFFIXES))
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Draw a picture; 2 if it cannot be done as asked."""
    options = parser().parse_args(argv)
    try:
        result = json.loads(options.result.read_text(encoding="utf-8"))
        print(f"written to {draw_learning_curves(result, options.out)}")
    except OSError as error:
        print(f"clusterorch.figures: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    except (ValueError, KeyError) as error:
        print(f"clusterorch.figures: {options.result}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
