from terraflow.hints.index.heap cimport Heap


cdef class Tenant:
    cdef public str name
    cdef public double ttl_s
    cdef public bint lfu
    cdef public long long keys_max
    cdef public double told_at
    cdef public long long keys
    cdef public int sources
    cdef public int spaces
    cdef public int holdings
    cdef public int first
    cdef public int last
    cdef public list removed
    cdef public dict places


cdef class Place:
    cdef public Tenant tenant
    cdef public str model
    cdef public double told_at
    cdef public long long keys
    cdef public dict hot
    cdef public int hot_from
    cdef public dict scopes
    cdef public dict sources


cdef class ScopeAt:
    cdef public Place place
    cdef public str scheme
    cdef public dict spaces
    cdef public dict holdings


cdef class Space:
    cdef public int number
    cdef public ScopeAt scope
    cdef public Place place
    cdef public Tenant tenant
    cdef public str adapter
    cdef public long long keys


cdef class Source:
    cdef public Place place
    cdef public str replica
    cdef public object stats
    cdef public object stats_at
    cdef public object event_at
    cdef public double heard_at
    cdef public double mark
    cdef public list holdings


cdef class Holding:
    cdef public int number
    cdef public ScopeAt scope
    cdef public Source source
    cdef public Tenant tenant
    cdef public long long size
    cdef public int first
    cdef public int last
    cdef public Heap seen
    cdef public Heap old
    cdef public Heap rare
    cdef public bint dead
