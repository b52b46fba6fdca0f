"""Threads whose end can be waited for, whatever the handler of a signal raises meanwhile.

Python runs handlers in the main thread, in the middle of whatever it does there, and they may
raise: KeyboardInterrupt does. `threading.Thread` cannot be trusted then: an exception inside
`start` leaves open whether the thread runs, and one inside `join` may mark a running thread as
ended (bpo-45274). Compiled code is interrupted only inside the calls that it makes.
"""

import _thread
import sys
import threading

import cython

from libc.stdint cimport uint64_t

from udpfast.core.atomics cimport load_acquire, store_release
from udpfast.core.linux cimport thread_name

__all__ = ["Worker", "shielded"]


@cython.final
cdef class Worker:
    """A thread that does one thing. The end of the process does not wait for it.

    Parameters
    ----------
    work : callable
        Called without arguments. What it raises is printed.
    name : str
        For `top -H`, `perf` and the like, which show 15 bytes of it.
    """

    cdef object _work
    cdef bytes _name
    cdef object _running               # a lock that the thread holds as long as it runs
    cdef readonly bint started
    cdef uint64_t _over                # written by the thread, read by whoever waits

    def __init__(self, work: Callable[[], object], str name):
        self._work = work
        self._name = name.encode()
        self._running = _thread.allocate_lock()

    def start(self) -> None:
        """Start the thread; returns at once.

        Raises
        ------
        RuntimeError
            It was started before, or there is no room for another thread.
        """
        if self.started:
            raise RuntimeError(f"thread {self._name.decode()} was started before")
        self._running.acquire()  # free until now: nobody waits for it
        _thread.start_new_thread(self._live, ())
        self.started = True

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the end, `timeout_s` at most; return whether it has ended, or never began.

        What a handler raises meanwhile ends the wait.
        """
        if not self.started or load_acquire(&self._over):
            return True
        if timeout_s is None:
            self._running.acquire()
        elif not self._running.acquire(timeout_s > 0, timeout_s if timeout_s > 0 else -1):
            return False
        self._running.release()
        return True

    def finish(self, interrupted: Callable[[], object] | None = None) -> None:
        """Wait for the end, whatever is raised meanwhile; then raise the first of that.

        Parameters
        ----------
        interrupted : callable, optional
            Called each time that something is raised.
        """
        raised = None
        while True:
            try:
                self.join()
                break
            except BaseException as failure:
                raised = raised or failure
                _call(interrupted)
        if raised is not None:
            raise raised

    def _live(self):
        thread_name(self._name)
        try:
            self._work()
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            self._work = None
            store_release(&self._over, 1)
            self._running.release()


cdef _call(what):
    # A handler may raise in there as well, and then it is called again.
    while what is not None:
        try:
            return what()
        except BaseException:
            continue


cdef bint _is_main(interrupted, list raised):
    while True:
        try:
            return threading.get_ident() == threading.main_thread().ident
        except BaseException as failure:
            raised.append(failure)
            _call(interrupted)


def shielded(work: Callable[[], Any], interrupted: Callable[[], object] | None = None) -> Any:
    """Call `work` where no signal's handler can raise: on a thread of its own.

    Parameters
    ----------
    work : callable
        Called without arguments, once.
    interrupted : callable, optional
        Called each time that a handler raises in the caller, which goes on waiting.

    Returns
    -------
    object
        What `work` returns. What it raises is raised; but first what a handler raised meanwhile.
    """
    outcome, raised = [], []
    if not _is_main(interrupted, raised):
        return work()  # handlers run in the main thread only

    def note():
        try:
            outcome.append((work(), None))
        except BaseException as failure:
            outcome.append((None, failure))

    worker = Worker(note, "udpfast")
    try:
        worker.start()
    except RuntimeError:  # no thread can be had: better interrupted than not done
        return work()
    try:
        worker.finish(interrupted)
    except BaseException as failure:
        raised.append(failure)
    result, failure = outcome[0]
    if raised:
        raise raised[0] from failure
    if failure is not None:
        raise failure
    return result
