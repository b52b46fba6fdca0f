"""Threads whose end can be waited for, whatever a signal handler raises meanwhile.

Python runs signal handlers in the main thread, in the middle of whatever it does there, and they
may raise, as for KeyboardInterrupt. Then `threading.Thread` cannot be relied on: after an exception
inside `start` it is unknown whether the thread runs, and one inside `join` may mark a running
thread as ended (bpo-45274). Compiled code is interrupted only inside the calls that it makes.
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
    """A thread that calls one function. The end of the process does not wait for it.

    Parameters
    ----------
    work : callable
        Called without arguments. What it raises is printed.
    name : str
        Name for `top -H`, `perf` and the like, which show 15 bytes of it.
    """

    cdef object _work
    cdef bytes _name
    cdef object _running               # a lock that the thread holds while it runs
    cdef readonly bint started
    cdef uint64_t _over                # written by the thread, read by those who wait

    def __init__(self, work: Callable[[], object], str name):
        self._work = work
        self._name = name.encode()
        self._running = _thread.allocate_lock()

    def start(self) -> None:
        """Start the thread; return at once.

        Raises
        ------
        RuntimeError
            It was started before, or the system has no room for another thread.
        """
        if self.started:
            raise RuntimeError(f"thread {self._name.decode()} was started before")
        self._running.acquire()  # free until now, so this does not block
        _thread.start_new_thread(self._live, ())
        self.started = True

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread to end; return whether it has ended, or never began.

        An exception from a signal handler ends the wait.

        Parameters
        ----------
        timeout_s : float, optional
            How long to wait; by default without limit.
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
        """Wait for the thread to end, whatever is raised meanwhile; then raise the first of these.

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
    # A signal handler may raise in there as well: then call it again.
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
    """Call `work` where no signal handler can raise: on a thread of its own.

    Parameters
    ----------
    work : callable
        Called without arguments, once.
    interrupted : callable, optional
        Called each time that a signal handler raises in the caller, which keeps waiting.

    Returns
    -------
    object
        What `work` returns. What it raises is raised, but first what a handler raised meanwhile.
    """
    outcome, raised = [], []
    if not _is_main(interrupted, raised):
        return work()  # handlers run only in the main thread

    def note():
        try:
            outcome.append((work(), None))
        except BaseException as failure:
            outcome.append((None, failure))

    worker = Worker(note, "udpfast")
    try:
        worker.start()
    except RuntimeError:  # no thread is available: better interrupted than not done
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
