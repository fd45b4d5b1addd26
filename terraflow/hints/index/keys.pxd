cimport cython

from terraflow.hints.index.places cimport Place, Space, Tenant

cdef int WORD_BYTES
cdef int CELL_BYTES
cdef int KEPT_BYTES_MAX
cdef long long SPARSE
cdef long long SPREAD
cdef long long CODE_MAX


cdef class Keys:
    cdef int mask
    cdef int[::1] buckets
    cdef unsigned long long[:] words
    cdef int[:] k_code
    cdef int[:] k_chain
    cdef int[:] k_spot
    cdef int[:] k_head
    cdef int[:] k_prev
    cdef int[:] k_next
    cdef int[::1] k_slot
    cdef int[::1] k_slot_before
    cdef unsigned char[::1] cells
    cdef int[::1] cell_next
    cdef int k_top
    cdef int c_top
    cdef int k_free
    cdef int c_free
    cdef readonly long long keys
    cdef int spot
    cdef int code
    cdef bytes sought
    cdef public int cursor
    cdef public list empty

    @cython.locals(size=Py_ssize_t, kind=int)
    cdef int find(self, int space, bytes sought) except -1
    cdef int _code(self, int spot, bytes sought) except -1
    cdef int _find(self, int spot, bytes sought) except -1
    @cython.locals(key=int, word=cython.ulonglong)
    cdef int _seek(self, int spot, bytes sought, int code) except -1
    @cython.locals(size=Py_ssize_t, cell=int, at=Py_ssize_t, text=cython.p_uchar, base=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t)
    cdef bint _same(self, int key, bytes sought) except -1
    @cython.locals(key=int, at=int)
    cdef int _make_key(self, Space space) except -1
    @cython.locals(size=Py_ssize_t, first=cython.ulonglong, at=Py_ssize_t, cell=int, base=Py_ssize_t, end=Py_ssize_t, i=Py_ssize_t)
    cdef unsigned long long _keep(self, bytes text) except? 0
    @cython.locals(word=cython.ulonglong, size=int, cell=int, base=Py_ssize_t)
    cdef bytes hash_of(self, int key)
    @cython.locals(at=int, other=int, place=Place, first=int, last=int)
    cdef _remove_key(self, int key, Space space)
    cdef _cool(self, Place place, int slot)
    cdef void _queue(self, int key, Tenant tenant) noexcept
    @cython.locals(before=int, after=int)
    cdef void _unqueue(self, int key, Tenant tenant) noexcept


@cython.locals(text=cython.p_uchar, word=cython.ulonglong)
cdef unsigned long long word_of(bytes sought) noexcept
