"""Bounds that hold on a machine that does other things too.

A wait for something that must come is bounded by a minute, so that only a hang lets it fail. A
promise of so many seconds is held to by `patient`.
"""

import os


def patient(seconds: float) -> float:
    """What a quiet machine does in so many seconds may take this long on this one, now.

    With as many runnable programs as processors each gets half of one beside a test; the load of
    the last minute lags, so this errs to the long side. A wait that ran into a bound of our own
    still shows on a quiet machine.
    """
    load, _, _ = os.getloadavg()
    return seconds * (1 + 2 * load / (os.cpu_count() or 1))
