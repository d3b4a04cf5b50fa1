"""A query that its caller has left: what it held is free when it ends, even while its relation lives on."""

import gc
import threading
import weakref

import pytest

from tests.patience import PATIENCE_SECONDS, wait_until
from tsql.backends import Run
from tsql.backends.local.run.query_threads import released
from tsql.kernels.expr.errors import CancelledError

pytestmark = pytest.mark.usefixtures("settled")


class Data:
    """Something large."""


@pytest.mark.parametrize("fails", [True, False])
def test_what_an_abandoned_query_held_is_freed(fails):
    run, begun, go_on, held = Run(), threading.Event(), threading.Event(), []

    def query():
        data = Data()
        held.append(weakref.ref(data))
        begun.set()
        assert go_on.wait(PATIENCE_SECONDS)
        if fails:
            raise CancelledError("it has seen the flag at last")
        yield data

    canceller = threading.Thread(target=lambda: (begun.wait(), run.cancel()))
    canceller.start()
    with pytest.raises(CancelledError, match="the query was cancelled"):
        list(released(query, run))
    canceller.join()
    assert held[0]() is not None, "the caller did not wait for it"
    go_on.set()
    assert wait_until(lambda: gc.collect() >= 0 and held[0]() is None)
    assert run.cancelled
