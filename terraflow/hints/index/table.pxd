cimport cython

from terraflow.hints.index.heap cimport Heap
from terraflow.hints.index.places cimport Holding, Place, ScopeAt, Source, Space, Tenant
from terraflow.hints.index.runs cimport Runs

cdef int CREDITS_MAX
cdef int TTL
cdef int CAP
cdef int QUOTA
cdef int EVENT
cdef int CLEAR


cdef class Table(Runs):
    cdef public long long waiting
    cdef public list spaces
    cdef list free_holdings
    cdef list free_spaces
    cdef public list dead
    cdef public list removed
    cdef public object tell
    cdef int turn
    cdef public long long admitted
    cdef public long long refreshed

    @cython.locals(number=int)
    cpdef Holding holding(self, ScopeAt scope, Source source)
    @cython.locals(number=int)
    cpdef Space space(self, ScopeAt scope, str adapter)
    cpdef forget_holding(self, Holding holding)
    cpdef forget_space(self, Space space)

    @cython.locals(tenant=Tenant, base=double, batch=int, rank=int, number=int, i=Py_ssize_t, key=int, entry=int,
                   into=int, was=int, new=cython.bint, sought=bytes, count=int, tier=int)
    cpdef ingest(self, Space space, Holding holding, list hashes, list counts, list tiers, list order, double seen)
    @cython.locals(number=int, weight=double, arrived=double, holding=Holding, victim=int)
    cdef _relieve(self)
    @cython.locals(gone=int, key=int, entry=int, after=int)
    cpdef int keep_quota(self, Tenant tenant, int keys_max) except -1
    @cython.locals(key=int, holding=Holding, space=Space, other=int, told=bytes)
    cdef _remove(self, int entry, int cause)
    cdef _count(self, Tenant tenant, int cause, long long times)
    @cython.locals(gone=int, entry=int, sought=bytes)
    cpdef int evict(self, Space space, Holding holding, list hashes) except -1
    cpdef long long bury(self, Holding holding) except -1
    @cython.locals(gone=int, holding=Holding, entry=int)
    cpdef int purge(self, int entries_max) except -1
    @cython.locals(gone=int, looked=int, holding=Holding, ttl_s=double)
    cpdef int sweep(self, double now, int entries_max, int holdings_max) except -1
    cdef bint _past(self, int entry, double now, double ttl_s) noexcept
    @cython.locals(place=Place, lfu=cython.bint, key=int, entry=int, before=int, last=int, sought=bytes)
    cpdef credit(self, Space space, Holding holding, list hashes, int slot)

    @cython.locals(found=list, key=int, entry=int, space=Space, holding=Holding, digest=cython.bint, sought=bytes)
    cpdef list rows(self, int keys_max)
    @cython.locals(key=int, entry=int, batch=int)
    cpdef bint bring_back(self, Space space, Holding holding, bytes sought, bint digest, int count, int tier, double seen,
                          int credits, double place) except -1
