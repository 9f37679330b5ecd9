"""A program that adds batches of runs to a history, for tests that start or kill several.

``writer.py URL ROWS NUMBER...`` adds batch NUMBER (runs NUMBER*ROWS and on, with the cursor
``writer`` at NUMBER) one after another, and prints a line of JSON for each. With ``hold`` before a
number it stops for good when the transaction of that batch has written all but its last rows. Rows
are written 500 at a time, not 10,000.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict

from history_runs import run_number

from predictor.errors import HistoryError
from predictor.site.history import store
from predictor.site.history.run import Run
from predictor.site.history.store import Cursor, History

STAGED_ROWS = 500


def main(url: str, rows: str, *words: str) -> None:
    with History.open(url) as history:
        say({"opened": history.count()})
        hold = False
        for word in words:
            if word == "hold":
                hold = True
                continue
            number = int(word)
            try:
                added = history.add(batch(number, int(rows), hold), cursor=Cursor("writer", number))
            except HistoryError as error:
                say({"number": number, "refused": str(error)})
            else:
                say({"number": number, **asdict(added)})


def batch(number: int, rows: int, hold: bool) -> Iterator[Run]:
    """The runs of a batch; ``hold`` stops in what the store asks for after its first rows."""
    for row in range(rows):
        if hold and row > STAGED_ROWS:
            say({"inside": number})
            signal.pause()
        yield run_number(number * rows + row)


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


if __name__ == "__main__":
    store.STAGED_ROWS = STAGED_ROWS
    main(*sys.argv[1:])
