cimport cython


cdef class Heap:
    cdef int[::1] places
    cdef int[::1] items
    cdef double[::1] majors
    cdef double[::1] minors
    cdef bint pairs
    cdef readonly int size
    cdef int room

    @cython.locals(items=int[::1], majors=double[::1], minors=double[::1])
    cdef _grow(self, int room)
    @cython.locals(at=int)
    cpdef put(self, int item, double major, double minor)
    @cython.locals(at=int, last=int, moved=int, above=int, major=double, minor=double)
    cpdef drop(self, int item)
    cdef void _set(self, int at, int item, double major, double minor) noexcept
    @cython.locals(above=int, theirs=double)
    cdef void _up(self, int at, int item, double major, double minor) noexcept
    @cython.locals(child=int, least=int, end=int, theirs=double)
    cdef void _down(self, int at, int item, double major, double minor) noexcept
