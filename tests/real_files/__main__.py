"""`make real-files`: the table by kind, and each file that went wrong."""

import argparse
import os
import sys
import warnings
from pathlib import Path

from .judge import KINDS, files_of, has_reader, judged, missing, table

parser = argparse.ArgumentParser(prog="real_files", description=__doc__)
parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; default: all")
parser.add_argument("-v", "--verbose", action="store_true", help="each file's verdict")
options = parser.parse_args()
data = os.environ.get("PATHCAST_DATA")
if not data:
    sys.exit("PATHCAST_DATA is not set; expected the folder that has real-files in it")
folder = Path(data) / "real-files"
if not folder.is_dir():
    sys.exit(f"{folder}: there is no such folder; set PATHCAST_DATA to the one that has it")

warnings.simplefilter("ignore")
verdicts = []
for kind in options.kinds or KINDS:
    if not (folder / kind).is_dir():
        print(f"{kind}: no such folder in {folder}")
        continue
    if not has_reader(kind):
        print(f"{kind}: no independent reader")
        continue
    if (lacks := missing(kind)) is not None:
        print(f"{kind}: {lacks}")
        continue
    verdicts += [judged(kind, file) for file in files_of(folder, kind)]
for verdict in verdicts:
    if options.verbose or not verdict.right:
        # names and texts of files may hold anything
        why = "".join(c if c.isprintable() else "?" for c in verdict.why)
        print(f"{verdict.kind}/{verdict.file}: {verdict.name}: {why[:400]}")
print(table(verdicts))
sys.exit(not all(verdict.right for verdict in verdicts))
