"""One thread for every test and every process that a test starts: small tensors gain nothing from more, and two
processes with two threads each on two cores wait for each other most of the time."""

import os
import signal

from hypothesis import HealthCheck, settings

import segue  # noqa: F401  (before torch: it sets how long waiting threads spin)

os.environ["OMP_NUM_THREADS"] = "1"
os.fsync = lambda file: None  # waiting for the disk takes longer than a small run does, and no test cuts the power

# A shell that starts the tests in the background makes them ignore Ctrl-C, and so would every process that they start.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# On a busy machine random examples may take long to make: that is no fault of a test.
settings.register_profile("segue", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("segue")
