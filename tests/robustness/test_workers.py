"""Worker threads: they end with the program, keep nothing of the last query, and hand on what fails first."""

import gc
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import pytest

from tests.patience import PATIENCE_SECONDS
from tsql.backends import Run
from tsql.backends.local.run.workers import parallel, pool


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
        from tsql.backends.local.run.workers import parallel
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


def test_work_inside_of_work_never_waits_for_a_busy_thread():
    """Every thread of the pool is busy with a task that needs the pool itself, several deep and for several callers at
    once."""

    def nested(depth):
        def work(number):
            return number if depth == 0 else sum(parallel(nested(depth - 1), 3, 2, Run()))

        return work

    results = []
    threads = [
        threading.Thread(target=lambda: results.append(parallel(nested(3), 4, 2, Run())), daemon=True) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert results == [[27, 27, 27, 27]] * 6
