"""Worker threads: they end with the program, keep nothing of the last query, and hand on what fails first."""

import gc
import subprocess
import sys
import textwrap
import time
import weakref

import pytest

from tests.patience import PATIENCE_SECONDS
from tsql.backends import Run
from tsql.backends.local.workers import parallel, pool


def test_results_in_the_order_of_tasks():
    assert parallel(lambda index: index * index, 20, 3, Run()) == [index * index for index in range(20)]


def test_the_first_failure_stops_the_others():
    run = Run()
    stopped = []
    run.on_cancel(lambda: stopped.append(True))

    def work(index):
        if index == 1:
            raise ValueError("one")
        while not stopped:
            time.sleep(0.001)
        return index

    with pytest.raises(ValueError, match="one"):
        parallel(work, 2, 2, run)
    assert stopped


def test_an_idle_worker_holds_nothing():
    class Data:
        pass

    data = Data()
    gone = weakref.ref(data)
    parallel(lambda index, data=data: index, 4, 2, Run())
    del data
    parallel(lambda index: index, 4, 2, Run())
    gc.collect()
    assert gone() is None


def test_pools_are_kept():
    assert pool(2) is pool(2)


def test_a_program_ends_while_a_worker_is_busy():
    program = """
        import threading, time
        from tsql.backends import Run
        from tsql.backends.local.workers import parallel
        begun = threading.Event()
        def work(index):
            begun.set()
            time.sleep(600)
        threading.Thread(target=lambda: parallel(work, 2, 2, Run()), daemon=True).start()
        begun.wait()
        print("done", flush=True)
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE)
    assert child.stdout.readline() == b"done\n"
    assert child.wait(PATIENCE_SECONDS) == 0
    child.stdout.close()
