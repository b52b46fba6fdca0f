"""Agents and the thread that runs them."""

import _thread
import os

import cython
from msgspec import Struct

from udpfast.core.atomics cimport counter_add, load_acquire, store_release
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.idle cimport IDLE_SLEEP_MAX_NS, idle_reset, idle_step
from udpfast.core.linux cimport ECANCELED, memory_lock, thread_name, thread_timer_slack
from udpfast.core.oserr cimport check

from udpfast.core.idle import idle_strategy
from udpfast.core.worker import Worker
from udpfast.errors import ConfigError

__all__ = ["Agent", "AgentRunner", "CallableAgent", "Grant"]


cdef class Agent:
    """Something that works in turns. Subclass it in Cython and override `do_work`.

    Parameters
    ----------
    role : str
        Its task in a word or two, which names its thread and its errors.
    """

    def __init__(self, str role):
        self.role = role

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        # Do a bounded amount of work, without blocking. Returns the amount (0: none), AGENT_DONE,
        # or -errno, which ends the runner and is raised by join().
        return AGENT_DONE

    def on_start(self) -> None:
        """Prepare, in the agent's thread and with the GIL. `start` raises what this raises."""

    def on_stop(self) -> None:
        """Clean up, in the agent's thread and with the GIL. Called if `on_start` returned."""


@cython.final
cdef class CallableAgent(Agent):
    """An agent whose work is a Python function. It takes the GIL at each turn.

    Parameters
    ----------
    role : str
        Its task in a word or two.
    work : callable
        Called with `now_ns`; returns how much it did (0: nothing), or None when all is done.
    close : callable, optional
        Called once at the end.
    """

    cdef object _work
    cdef object _close

    def __init__(
            self, str role, work: Callable[[int], int | None],
            close: Callable[[], object] | None = None):
        super().__init__(role)
        self._work = work
        self._close = close

    def on_stop(self) -> None:
        """Call `close`."""
        if self._close is not None:
            self._close()

    cdef int do_work(self, int64_t now_ns) noexcept nogil:
        with gil:
            try:
                count = self._work(now_ns)
                return AGENT_DONE if count is None else count
            except BaseException as failure:
                self.failure = failure
                return -ECANCELED


class Grant(Struct, frozen=True):
    """What a runner asked of the operating system, and whether it was granted.

    Attributes
    ----------
    name : str
        "core", "fifo_priority" or "lock_memory".
    asked : str
        What was asked for.
    granted : bool
        Whether it was granted.
    reason : str
        Why not; empty if granted.
    """

    name: str
    asked: str
    granted: bool
    reason: str


@cython.final
cdef class AgentRunner:
    """A thread that runs agents in turns, without the GIL, until it is stopped.

    Parameters
    ----------
    agents : Agent or sequence of Agent
        The agents, in the order in which they run at every turn.
    core : int, optional
        The core to pin the thread to.
    idle : str or IdleStrategy
        What to do after a turn without work.
    fifo_priority : int, optional
        Run with SCHED_FIFO at this priority (1 to 99).
    lock_memory : bool
        Lock all pages of this process into memory.
    strict : bool
        Raise if one of these is denied. Otherwise it is noted in `grants`, and the runner
        continues.

    Attributes
    ----------
    agents : tuple[Agent, ...]
    grants : tuple[Grant, ...]

    Notes
    -----
    Python handles signals in the main thread, where a handler calls `stop`. So a main thread
    should `start` and `finish`, not `run`. Only after `finish` has returned is it certain that
    the thread uses nothing any more; release what it works on after that.
    """

    def __init__(
            self, agents: Agent | Sequence[Agent], *, core: int | None = None,
            idle: str | IdleStrategy = "backoff", fifo_priority: int | None = None,
            bint lock_memory=False, bint strict=False):
        self.agents = (agents,) if isinstance(agents, Agent) else tuple(agents)
        if not 1 <= len(self.agents) <= AGENTS_MAX:
            raise ConfigError(f"a runner takes 1 to {AGENTS_MAX} agents, was {len(self.agents)}")
        for self._count, agent in enumerate(self.agents, 1):
            if not isinstance(agent, Agent):
                raise TypeError(f"a runner takes Agents, was {type(agent).__name__}")
            self._borrowed[self._count - 1] = <void*>agent
        self.grants = ()
        self._settings = (core, fifo_priority, lock_memory, strict)
        self._worker = Worker(self._live, self.role)
        self._settled = _thread.allocate_lock()
        self._settled.acquire()
        idle_reset(&self._idle, idle_strategy(idle), IDLE_SLEEP_MAX_NS)
        self.count_into(&self._own[0], &self._own[1], &self._own[2])

    cdef void count_into(self, int64_t* cycles, int64_t* longest_ns, int64_t* slow) noexcept:
        # Keep the statistics in these counter slots, which must outlive the runner.
        self._cycles = cycles
        self._longest_ns = longest_ns
        self._slow = slow

    def start(self) -> None:
        """Start the thread; return when every agent's `on_start` has returned.

        Raises
        ------
        Exception
            What an `on_start` raised, or, with `strict`, an error such as `PermissionError`.
        RuntimeError
            The runner was started before.
        """
        self._begin_once()
        self._worker.start()
        try:
            self._settled.acquire()
        except BaseException:  # from a signal handler: the caller cannot stop it
            self.stop()
            self._worker.finish()
            raise
        if not self._began:
            self._worker.finish()
            raise self._failure

    def _begin_once(self):
        if self._used:
            raise RuntimeError(f"runner of {self.role} was started before")
        self._used = True

    def run(self) -> None:
        """Run in the calling thread until stopped or until an agent ends; raise as `join` does.

        The thread keeps its core and priority afterwards.
        """
        self._begin_once()
        self._live()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Ask the loop to end after its present turn. Does not wait. Any thread may call it."""
        store_release(&self._stopped, 1)  # read by _loop, once per turn

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the thread to end; return whether it has.

        Parameters
        ----------
        timeout_s : float, optional
            How long to wait; by default without limit.

        Raises
        ------
        Exception
            What ended the thread, unless that was `stop` or the end of the work.
        """
        if not self._worker.started:
            raise RuntimeError(f"runner of {self.role} was not started")
        if not self._worker.join(timeout_s):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def finish(self) -> None:
        """Stop the thread and wait for its end, whatever a signal handler raises meanwhile.

        Raises
        ------
        Exception
            What ended the thread, as for `join`; but first what a handler raised.
        """
        self.stop()
        self._worker.finish()
        if self._failure is not None:
            raise self._failure

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.finish()

    @property
    def role(self) -> str:
        """The agents' roles, joined by "+"."""
        return "+".join(agent.role for agent in self.agents)

    @property
    def cycles(self) -> int:
        """Number of turns of the loop."""
        return self._cycles[0]

    @property
    def cycle_longest_ns(self) -> int:
        """The longest turn, among those in which the idle strategy kept the core, in ns."""
        return self._longest_ns[0]

    @property
    def cycles_slow(self) -> int:
        """Number of turns longer than 1 ms, among the same turns."""
        return self._slow[0]

    def _live(self):
        # The whole life of the thread.
        started = []
        cdef int rc
        try:
            self._ask()
            for agent in self.agents:
                agent.on_start()
                started.append(agent)
            self._began = True
            self._settled.release()
            with nogil:
                rc = self._loop()
            if rc not in (0, AGENT_DONE):
                self._raise(rc)
        except BaseException as failure:
            self._failure = failure
        self._tidy(started)
        if not self._began:
            self._settled.release()

    cdef int _loop(self) noexcept nogil:
        # One clock read per turn: it ends the measurement of this turn, and is now_ns of the next.
        cdef int64_t now_ns = clock_monotonic_ns(), ended_ns, cycle_ns
        cdef int i, rc, work_count
        while load_acquire(&self._stopped) == 0:  # pairs with stop()
            work_count = 0
            for i in range(self._count):
                rc = (<Agent>self._borrowed[i]).do_work(now_ns)
                if rc < 0:
                    self._failed = i
                    return rc
                work_count += rc
            idle_step(&self._idle, work_count)
            ended_ns = clock_monotonic_ns()
            counter_add(self._cycles, 1)
            cycle_ns = ended_ns - now_ns
            if not self._idle.parked and cycle_ns > self._longest_ns[0]:
                counter_add(self._longest_ns, cycle_ns - self._longest_ns[0])
            if not self._idle.parked and cycle_ns > CYCLE_SLOW_NS:
                counter_add(self._slow, 1)
            now_ns = ended_ns
        return 0

    def _raise(self, rc):
        cdef Agent agent = self.agents[self._failed]
        if agent.failure is None:
            try:
                check(rc, "run agent", agent.role)
            except OSError as failure:
                agent.failure = failure  # on_stop may want to know
        raise agent.failure

    def _tidy(self, started):
        # Stop every agent that was started; the first failure is the one to report.
        for agent in reversed(started):
            try:
                agent.on_stop()
            except BaseException as failure:
                self._failure = self._failure or failure

    def _ask(self):
        # Ask the operating system, for the calling thread, for what the settings want.
        core, fifo_priority, lock_memory, strict = self._settings
        name = self.role.encode()
        check(thread_name(name), "name thread", self.role)
        # By default the kernel may end a sleep 50 us late to batch wake-ups; a backoff starts at 1
        # us.
        check(thread_timer_slack(1), "set timer slack", self.role)
        grants = []
        if core is not None:
            grants.append(_grant("core", f"core {core}",
                                 lambda: os.sched_setaffinity(0, {core})))
        if fifo_priority is not None:
            parameter = os.sched_param(fifo_priority)
            grants.append(_grant("fifo_priority", f"SCHED_FIFO {fifo_priority}",
                                 lambda: os.sched_setscheduler(0, os.SCHED_FIFO, parameter)))
        if lock_memory:
            grants.append(_grant("lock_memory", "mlockall",
                                 lambda: check(memory_lock(), "lock memory")))
        self.grants = tuple(grant for grant, _ in grants)
        for grant, denial in grants:
            if strict and denial is not None:
                raise type(denial)(denial.errno, f"cannot get {grant.asked}: {grant.reason}")


def _grant(name, asked, ask):
    # Thread id 0 in sched_setaffinity(2) and sched_setscheduler(2) is the calling thread.
    try:
        ask()
    except OSError as denial:
        return Grant(name, asked, False, denial.strerror), denial
    return Grant(name, asked, True, ""), None
