# Cboe Streaming Markets, level 2. Big endian. A message has u16 length, u8 template, c1, u32
# number, then these fields. Offsets count from the length.

cdef enum:
    CSM_TEMPLATE = 2
    CSM_NUMBER = 4
    CSM_CLASS = 8
    CSM_SECURITY = 12
    CSM_CHAIN = 16               # u32 RptSeq
    CSM_STATUS = 20
    CSM_COUNT = 22               # template 18: u8 entries; in template 17 one byte later
    CSM_ENTRIES = 23
    CSM_DEFINITION = 13
    CSM_HEARTBEAT = 16
    CSM_REFRESH = 17
    CSM_INCREMENTAL = 18
    CSM_STATE = 19
    CSM_DECIMALS = 8             # of prices in changes
