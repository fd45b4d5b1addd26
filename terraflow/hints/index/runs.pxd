cimport cython

from terraflow.hints.index.arrivals cimport Arrivals
from terraflow.hints.index.places cimport Holding, Space

cdef int AHEAD
cdef int VISITS_MAX


cdef class Runs(Arrivals):
    cdef int[::1] depth
    cdef double[::1] oldest
    cdef int[::1] coldest
    cdef long long[::1] tokens
    cdef int[::1] lost
    cdef public double[::1] marks
    cdef public bint ahead
    cdef int[::1] near
    cdef int[::1] codes

    cpdef bint live(self, Holding holding, double now) except -1
    @cython.locals(touched=list, holding=Holding)
    cpdef list chain(self, Space space, list hashes, list counts, double now, bint exact=*)
    @cython.locals(ttl_s=double, total=cython.longlong, i=Py_ssize_t, n=Py_ssize_t, key=int, entry=int, at=int,
                   number=int, batch=int, seen=double, rank=int, went_on=cython.bint, visits=int, sought=bytes, touched_to=Py_ssize_t, touched_from=Py_ssize_t)
    cdef _run(self, Space space, list hashes, list counts, double now, bint exact, list touched)
    @cython.locals(i=Py_ssize_t, count=Py_ssize_t, at=Py_ssize_t, mask=int,
                   near=int[::1], codes=int[::1], buckets=int[::1])
    cdef Py_ssize_t _touch(self, int space, list hashes, Py_ssize_t start) except -1
    @cython.locals(found=list, holding=Holding, number=int)
    cdef list _told(self, list touched)
