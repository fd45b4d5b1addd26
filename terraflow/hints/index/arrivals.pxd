cimport cython

from terraflow.hints.index.heap cimport Heap
from terraflow.hints.index.keys cimport Keys
from terraflow.hints.index.places cimport Holding


cdef class Arrivals(Keys):
    cdef public long long entries_max
    cdef int[:] e_next
    cdef int[:] e_hold
    cdef int[:] e_batch
    cdef int[:] e_count
    cdef int[:] e_key
    cdef int[:] e_prev
    cdef int[:] e_after
    cdef int[:] e_rank
    cdef int[::1] credits
    cdef int[::1] old_at
    cdef int[::1] rare_at
    cdef int[::1] b_left
    cdef double[::1] b_seen
    cdef double[::1] b_from
    cdef int[::1] b_at
    cdef int e_top
    cdef int b_top
    cdef int e_free
    cdef int b_free
    cdef public long long entries
    cdef public double arrivals
    cdef public list holdings
    cdef Heap victims
    cdef double weight
    cdef double weight_arrived

    @cython.locals(batch=int)
    cdef int _make_batch(self, Holding holding, double seen, double place) except -1
    @cython.locals(left=int)
    cdef _leave_batch(self, int batch, Holding holding)
    cdef double arrived(self, int entry) noexcept
    @cython.locals(place=double)
    cdef _enter(self, int entry, Holding holding)
    @cython.locals(before=int, after=int)
    cdef _leave(self, int entry, Holding holding)
    @cython.locals(victim=int, least=int, weight=double, place=double)
    cdef int _weigh(self, Holding holding) except -1
    cpdef reweigh(self, Holding holding)
    @cython.locals(entry=int)
    cdef int _entry_of(self, int key, int number) noexcept
    @cython.locals(entry=int)
    cdef int _make_entry(self, int key, Holding holding) except -1
