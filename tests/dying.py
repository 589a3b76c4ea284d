"""A process that ends itself. It is imported anew there, hence nothing else is here."""

import os
import signal


def send_and_die(results, seconds):
    results.send({"fit_seconds": seconds})
    os.kill(os.getpid(), signal.SIGALRM)
