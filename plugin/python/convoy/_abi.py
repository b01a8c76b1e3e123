# SPDX-License-Identifier: Apache-2.0
# Generated from the public headers by abi/python.py; `make abi-draft` writes it, and the gate abi/python.sh compares it.
"""Structs, constants, callback types and table slots of the C ABI, as the headers lay them out."""

from __future__ import annotations

from ctypes import CFUNCTYPE, Structure
from ctypes import c_char, c_double, c_int32, c_int64, c_size_t, c_uint16, c_uint32, c_uint64, c_uint8, c_void_p
from typing import Any, Callable, ClassVar, Tuple

Slot = Callable[..., int]  # returns a status
Slots = Tuple[Tuple[str, int, Any], ...]  # name, offset in the table, prototype

BAD_FILE = -507
BAD_STATE = -102
BROKEN = -305
BUFFER_TOO_SMALL = -105
BUSY = -204
CALL_ERROR_ROW = 2
CALL_POST_ERROR = 1
CANCELED = -302
CLOSED = -103
COLUMN_HAS_IGNORED = 1
COLUMN_OPTIONAL = 2
CONSENSUS_NONE = 255
CONTEXT_CLOSING = 6
CONTEXT_IMPORTED = 4
CONTEXT_QUIESCED = 3
CONTEXT_QUIESCING = 2
CONTEXT_RETIRED = 5
CONTEXT_RUNNING = 1
COPY_ANY = 0
COPY_FROM_DEVICE = 2
COPY_ON_DEVICE = 3
COPY_TO_DEVICE = 1
CORE_MAJOR = 1
CORE_MINOR = 0
DESCRIPTOR_BINARY = 1
DESCRIPTOR_JSON = 2
DEVICE_CUDA = 1
DEVICE_NONE = 0
DEVICE_TABLE = 2
DIVERGED = -401
DRAIN_TIMEOUT = -506
ENGINE_CLOSED = 3
ENGINE_CLOSING = 2
ENGINE_NOTIFY = 2
ENGINE_OPEN = 1
ENGINE_PRIVATE = 1
ENTRY_DONE = 2
ENTRY_GATE_SKIP = 4
ENTRY_STAGED = 1
ERROR_TEXT_BYTES = 256
FIELD_COUNTS = 4
FIELD_DIGEST = 5
FIELD_EPOCH = 3
FIELD_NONE = 0
FIELD_OPERATION = 1
FIELD_POLICY = 7
FIELD_SCHEMA = 6
FIELD_TAG = 8
FIELD_WIRE = 2
FORKED = -104
GATE_HOST = 2
GATE_IDENTITY = 1
GATE_NONE = 0
GROUP_ACTIVE = 3
GROUP_BROKEN = 5
GROUP_CLOSED = 8
GROUP_CLOSING = 7
GROUP_DEGRADE = 1
GROUP_FAILED = 6
GROUP_OPENING = 1
GROUP_READY = 2
GROUP_STUCK = 4
INIT_FAILED = -505
INVALID_ARGUMENT = -101
INVARIANT = -901
IN_PROGRESS = 1
LAYOUT_MAX = 0
LAYOUT_SUM = 1
LIMIT = -203
LOAD_COPY = 1
LOAD_VIEW = 0
LOCALITY_HOST = 2
LOCALITY_PROCESS = 1
LOCALITY_REMOTE = 3
LOG_DEBUG = 4
LOG_ERROR = 1
LOG_INFO = 3
LOG_TRACE = 5
LOG_WARN = 2
MALFORMED = -402
MEMBER_ABANDONED = 7
MEMBER_CLOSED = 3
MEMBER_DIVERGED = 4
MEMBER_ERROR = 5
MEMBER_HEARD = 0
MEMBER_LOST = 2
MEMBER_MISSING = 1
MEMBER_UNKNOWN = 6
MEMORY_DEVICE = 2
MEMORY_HOST = 1
MEMORY_MANAGED = 4
MEMORY_PINNED = 3
MEMORY_SHARED = 0
MOVED = -107
MOVED_ENGINE = 2
MOVED_GROUP = 1
MOVE_MAJOR = 1
MOVE_MINOR = 0
NOTE_DIGEST = 2
NOTE_MANIFEST = 1
NOTE_OWNER = "convoy"
NOTICED_CLOSE = 4
NOTICED_LINK = 2
NOTICED_NONE = 0
NOTICED_PEER = 3
NOTICED_PROCESS = 1
NOT_FOUND = -501
NO_ENTRY = -502
NO_MEMORY = -201
OK = 0
OPERATION_NONE = 0
OPERATION_POLL = 1
OPERATION_POLL_KEYED = 2
OPERATION_SYNC = 3
OUTCOME_DECIDED = 1
OVERLOADED = -206
PADDED_ALL_IDLE = 3
PADDED_NO_CAPTURE = 1
PADDED_OK = 0
PADDED_OVER_LIMIT = 2
PATH_AUTO = 0
PATH_LEND = 1
PATH_MESSAGES = 5
PATH_PROCESS_VM = 4
PATH_PULL = 3
PATH_PUSH = 2
PATH_RMA = 6
PEER_ERROR = -304
PEER_IS_CLOSED = 2
PEER_IS_CONNECTED = 1
PEER_IS_LOST = 3
PEER_LOST = -303
POLL_ABSENT_SKIP = 2
POLL_KEYED = 1
POLL_LISTS_MAX = 8
POLL_MAJOR = 1
POLL_MINOR = 0
POOL_EXHAUSTED = -202
PREALLOC_FIRST = 0
PREALLOC_NEVER = 1
PREALLOC_ONLY = 2
PRESENT = 0
PRESENT_EMPTY = 4
PRESENT_ERROR = 3
PRESENT_INACTIVE = 1
PRESENT_LOST = 2
QUERY_SYMBOL = "convoy_query"
REDUCE_ALL_EQUAL = 4
REDUCE_MAX = 2
REDUCE_MIN = 1
REDUCE_NONE = 0
REDUCE_SUM = 3
REGISTER_READ_ONLY = 1
RETRIES_NONE = 4294967295
SESSION_BYTES = 128
SONAME = "libconvoy.so.1"
STAGE_CHECKSUM = 1
STAGE_INLINE = 2
STALE_EPOCH = -405
STATE_BOOTSTRAPPING = 1
STATE_FAILED = 0
STATE_SUCCESS = 4
STATE_TRANSFERRING = 3
STATE_WAITING_FOR_INPUT = 2
SYNC_COLUMNS_MAX = 64
SYNC_ERRORS_AS_PRESENCE = 1
SYNC_EXCHANGE = 4
SYNC_MAJOR = 1
SYNC_MINOR = 0
SYNC_SLOT_NONE = 4294967295
SYNC_WORLD = 2
SYSTEM = -205
TENSOR_LISTED = 1
TIMED_OUT = -301
TIMES = 8
TIME_LOADED = 4
TIME_OFFERED = 3
TIME_READY = 1
TIME_RETURNED = 5
TIME_STAGED = 2
TIME_STARTED = 0
TOO_NEW = -504
TOO_OLD = -503
TOPIC_CALL_LOG = 4
TOPIC_CONFIG = 5
TOPIC_DUMP = 1
TOPIC_NET = 6
TOPIC_PROMETHEUS = 3
TOPIC_STATS = 2
TOPIC_TIMELINE = 7
TOPIC_TRACE = 8
TRANSFER_ABORTED = 13
TRANSFER_FAILED = 12
TRANSFER_FILLED = 11
TRANSFER_FILLING = 10
TRANSFER_LOADED = 8
TRANSFER_LOADING = 7
TRANSFER_MAJOR = 1
TRANSFER_MINOR = 1
TRANSFER_OFFERED = 4
TRANSFER_QUEUED = 3
TRANSFER_RESERVED = 9
TRANSFER_SENT = 5
TRANSFER_STAGED = 2
TRANSFER_STAGING = 1
TRANSFER_WAITING = 6
TRUNCATED = -307
UNAUTHENTICATED = -406
UNKNOWN_MESSAGE = -403
UNREACHABLE = -306
UNSUPPORTED = -106
VERSION_MISMATCH = -404

AllgatherFn = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_void_p)
LogFn = CFUNCTYPE(None, c_void_p, c_uint32, c_void_p, c_size_t)
PollAdvanceFn = CFUNCTYPE(c_int32, c_void_p, c_size_t, c_size_t)
PollReadFn = CFUNCTYPE(c_int32, c_void_p, c_size_t, c_size_t)
ReadyFn = CFUNCTYPE(c_int32, c_void_p)
QUERY_RESULT = c_int32
QUERY_ARGUMENTS = [c_void_p, c_void_p, c_void_p]


class Admission(Structure):
    """struct convoy_admission, 48 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    under_way_max: int
    under_way_bytes: int
    peer_under_way_max: int
    waiting_max: int
    peer_under_way_bytes: int
    age_ns: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("under_way_max", c_uint32),
        ("under_way_bytes", c_uint64),
        ("peer_under_way_max", c_uint32),
        ("waiting_max", c_uint32),
        ("peer_under_way_bytes", c_uint64),
        ("age_ns", c_uint64),
    ]


class Completion(Structure):
    """struct convoy_completion, 16 bytes."""

    transfer: int
    status: int
    state: int

    _fields_ = [
        ("transfer", c_uint64),
        ("status", c_int32),
        ("state", c_uint32),
    ]


class ContextConfig(Structure):
    """struct convoy_context_config, 64 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    log_level: int
    log: Any
    log_user: Any
    secret: Any
    secret_bytes: int
    settings: Any
    settings_length: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("log_level", c_uint32),
        ("log", c_void_p),
        ("log_user", c_void_p),
        ("secret", c_void_p),
        ("secret_bytes", c_size_t),
        ("settings", c_void_p),
        ("settings_length", c_size_t),
    ]


class CoreTable:
    """Functions of family "core"; a slot that the loaded build lacks raises Unsupported."""

    FAMILY: ClassVar[str] = "core"
    MAJOR: ClassVar[int] = CORE_MAJOR
    MINOR: ClassVar[int] = CORE_MINOR
    TABLE_SIZE: ClassVar[int] = 120
    SLOTS: ClassVar[Slots] = (
        ("context_open", 8, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)),
        ("context_close", 16, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("context_describe", 24, CFUNCTYPE(c_int32, c_void_p, c_uint32, c_void_p, c_void_p)),
        ("group_open", 32, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("group_open_start", 40, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("group_open_test", 48, CFUNCTYPE(c_int32, c_void_p, c_void_p)),
        ("group_open_wait", 56, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("group_close", 64, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("group_cancel", 72, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_void_p)),
        ("group_reopen", 80, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("operation_abandon", 88, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("operation_report", 96, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)),
        ("group_info", 104, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)),
        ("group_describe", 112, CFUNCTYPE(c_int32, c_void_p, c_uint32, c_void_p, c_void_p)),
    )

    context_open: Slot
    context_close: Slot
    context_describe: Slot
    group_open: Slot
    group_open_start: Slot
    group_open_test: Slot
    group_open_wait: Slot
    group_close: Slot
    group_cancel: Slot
    group_reopen: Slot
    operation_abandon: Slot
    operation_report: Slot
    group_info: Slot
    group_describe: Slot


class DeviceTable(Structure):
    """struct convoy_device_table, 112 bytes."""

    struct_size: int
    name_length: int
    name: Any
    user: Any
    query: Any
    copy: Any
    event_create: Any
    event_destroy: Any
    event_record: Any
    event_query: Any
    stream_wait: Any
    stream_query: Any
    register_range: Any
    unregister_range: Any
    error_text: Any

    _fields_ = [
        ("struct_size", c_uint32),
        ("name_length", c_uint32),
        ("name", c_void_p),
        ("user", c_void_p),
        ("query", c_void_p),
        ("copy", c_void_p),
        ("event_create", c_void_p),
        ("event_destroy", c_void_p),
        ("event_record", c_void_p),
        ("event_query", c_void_p),
        ("stream_wait", c_void_p),
        ("stream_query", c_void_p),
        ("register_range", c_void_p),
        ("unregister_range", c_void_p),
        ("error_text", c_void_p),
    ]


class EngineFigures(Structure):
    """struct convoy_engine_figures, 152 bytes."""

    struct_size: int
    written_bytes: int
    capacity: int
    block: int
    asked: int
    taken: int
    free: int
    largest_free: int
    quarantined: int
    taken_count: int
    ready_count: int
    quarantined_count: int
    reader_count: int
    exhausted_count: int
    expired_count: int
    stale_count: int
    fragmentation: float
    old_generations: int
    old_bytes: int
    old_taken: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("capacity", c_uint64),
        ("block", c_uint64),
        ("asked", c_uint64),
        ("taken", c_uint64),
        ("free", c_uint64),
        ("largest_free", c_uint64),
        ("quarantined", c_uint64),
        ("taken_count", c_uint64),
        ("ready_count", c_uint64),
        ("quarantined_count", c_uint64),
        ("reader_count", c_uint64),
        ("exhausted_count", c_uint64),
        ("expired_count", c_uint64),
        ("stale_count", c_uint64),
        ("fragmentation", c_double),
        ("old_generations", c_uint64),
        ("old_bytes", c_uint64),
        ("old_taken", c_uint64),
    ]


class EngineInfo(Structure):
    """struct convoy_engine_info, 216 bytes."""

    struct_size: int
    written_bytes: int
    state: int
    peer_count: int
    transfer_count: int
    completion_fd: int
    incarnation: int
    pool_memory: Any
    pool_bytes: int
    pool_generation: int
    session: bytes
    admitted_count: int
    waiting_count: int
    admitted_bytes: int
    waiting_bytes: int
    overloaded_count: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("state", c_uint32),
        ("peer_count", c_uint32),
        ("transfer_count", c_uint32),
        ("completion_fd", c_int32),
        ("incarnation", c_uint64),
        ("pool_memory", c_void_p),
        ("pool_bytes", c_uint64),
        ("pool_generation", c_uint64),
        ("session", c_char * 128),
        ("admitted_count", c_uint32),
        ("waiting_count", c_uint32),
        ("admitted_bytes", c_uint64),
        ("waiting_bytes", c_uint64),
        ("overloaded_count", c_uint64),
    ]


class Error(Structure):
    """struct convoy_error, 288 bytes."""

    struct_size: int
    written_bytes: int
    status: int
    rank: int
    round: int
    sys_errno: int
    ucx_status: int
    text: bytes

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("status", c_int32),
        ("rank", c_int32),
        ("round", c_uint64),
        ("sys_errno", c_int32),
        ("ucx_status", c_int32),
        ("text", c_char * 256),
    ]


class ExportOptions(Structure):
    """struct convoy_export_options, 16 bytes."""

    struct_size: int
    critical_flags: int
    format_max: int
    reserved: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("format_max", c_uint32),
        ("reserved", c_uint32),
    ]


class ExportedState(Structure):
    """struct convoy_exported_state, 24 bytes."""

    struct_size: int
    critical_flags: int
    data: Any
    bytes: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("data", c_void_p),
        ("bytes", c_size_t),
    ]


class FamilyAnswer(Structure):
    """struct convoy_family_answer, 144 bytes."""

    table: Any
    status: int
    major: int
    minor: int
    plugin_major_min: int
    plugin_minor_min: int
    plugin_major_max: int
    plugin_minor_max: int
    reason: bytes

    _fields_ = [
        ("table", c_void_p),
        ("status", c_int32),
        ("major", c_uint16),
        ("minor", c_uint16),
        ("plugin_major_min", c_uint16),
        ("plugin_minor_min", c_uint16),
        ("plugin_major_max", c_uint16),
        ("plugin_minor_max", c_uint16),
        ("reason", c_char * 120),
    ]


class FamilyRequest(Structure):
    """struct convoy_family_request, 24 bytes."""

    name: Any
    name_length: int
    major_min: int
    minor_min: int
    major_max: int
    minor_max: int

    _fields_ = [
        ("name", c_void_p),
        ("name_length", c_size_t),
        ("major_min", c_uint16),
        ("minor_min", c_uint16),
        ("major_max", c_uint16),
        ("minor_max", c_uint16),
    ]


class GroupInfo(Structure):
    """struct convoy_group_info, 64 bytes."""

    struct_size: int
    written_bytes: int
    state: int
    member_count: int
    own_index: int
    host_count: int
    lost_count: int
    wire: int
    epoch: int
    round: int
    segment_bytes: int
    operation: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("state", c_uint32),
        ("member_count", c_uint32),
        ("own_index", c_uint32),
        ("host_count", c_uint32),
        ("lost_count", c_uint32),
        ("wire", c_uint32),
        ("epoch", c_uint64),
        ("round", c_uint64),
        ("segment_bytes", c_uint64),
        ("operation", c_uint64),
    ]


class GroupOptions(Structure):
    """struct convoy_group_options, 144 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    own_index: int
    name: Any
    name_length: int
    member_ids: Any
    member_count: int
    own_id: int
    listener_index: int
    rendezvous: Any
    rendezvous_length: int
    allgather: Any
    allgather_user: Any
    epoch: int
    open_timeout_ns: int
    timeout_ns: int
    blob_bytes_max: int
    call_log_entries: int
    schema: Any
    sync_inner: int
    sync_slots: int
    poll_faults: Any

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("own_index", c_uint32),
        ("name", c_void_p),
        ("name_length", c_size_t),
        ("member_ids", c_void_p),
        ("member_count", c_size_t),
        ("own_id", c_int32),
        ("listener_index", c_uint32),
        ("rendezvous", c_void_p),
        ("rendezvous_length", c_size_t),
        ("allgather", c_void_p),
        ("allgather_user", c_void_p),
        ("epoch", c_uint64),
        ("open_timeout_ns", c_uint64),
        ("timeout_ns", c_uint64),
        ("blob_bytes_max", c_uint32),
        ("call_log_entries", c_uint32),
        ("schema", c_void_p),
        ("sync_inner", c_uint32),
        ("sync_slots", c_uint32),
        ("poll_faults", c_void_p),
    ]


class Holdings(Structure):
    """struct convoy_holdings, 56 bytes."""

    struct_size: int
    written_bytes: int
    state: int
    group_count: int
    engine_count: int
    call_count: int
    operation_count: int
    transfer_count: int
    copy_count: int
    thread_count: int
    descriptor_count: int
    mapping_count: int
    registration_count: int
    reserved: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("state", c_uint32),
        ("group_count", c_uint32),
        ("engine_count", c_uint32),
        ("call_count", c_uint32),
        ("operation_count", c_uint32),
        ("transfer_count", c_uint32),
        ("copy_count", c_uint32),
        ("thread_count", c_uint32),
        ("descriptor_count", c_uint32),
        ("mapping_count", c_uint32),
        ("registration_count", c_uint32),
        ("reserved", c_uint32),
    ]


class HostInfo(Structure):
    """struct convoy_host_info, 56 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    reserved: int
    name: Any
    name_length: int
    families: Any
    family_stride: int
    family_count: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("reserved", c_uint32),
        ("name", c_void_p),
        ("name_length", c_size_t),
        ("families", c_void_p),
        ("family_stride", c_size_t),
        ("family_count", c_size_t),
    ]


class Load(Structure):
    """struct convoy_load, 112 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    mode: int
    descriptor: Any
    descriptor_length: int
    request: Any
    request_length: int
    peer: int
    slot: int
    destination: Any
    destination_bytes: int
    stream: Any
    event: Any
    timeout_ns: int
    path: int
    retries: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("mode", c_uint32),
        ("descriptor", c_void_p),
        ("descriptor_length", c_size_t),
        ("request", c_void_p),
        ("request_length", c_size_t),
        ("peer", c_uint64),
        ("slot", c_uint64),
        ("destination", c_void_p),
        ("destination_bytes", c_uint64),
        ("stream", c_void_p),
        ("event", c_void_p),
        ("timeout_ns", c_uint64),
        ("path", c_uint32),
        ("retries", c_uint32),
    ]


class MemberReport(Structure):
    """struct convoy_member_report, 96 bytes."""

    rank: int
    index: int
    host: int
    condition: int
    noticed_by: int
    behind: int
    reason: int
    operation: int
    round: int
    tag: int
    age_ns: int
    epoch: int
    counts: int
    digest: int
    schema: int
    policy: int

    _fields_ = [
        ("rank", c_int32),
        ("index", c_uint32),
        ("host", c_uint32),
        ("condition", c_uint32),
        ("noticed_by", c_uint32),
        ("behind", c_int32),
        ("reason", c_int32),
        ("operation", c_uint32),
        ("round", c_uint64),
        ("tag", c_uint64),
        ("age_ns", c_uint64),
        ("epoch", c_uint64),
        ("counts", c_uint64),
        ("digest", c_uint64),
        ("schema", c_uint64),
        ("policy", c_uint64),
    ]


class MemoryInfo(Structure):
    """struct convoy_memory_info, 16 bytes."""

    struct_size: int
    kind: int
    device: int
    reserved: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_uint32),
        ("device", c_int32),
        ("reserved", c_uint32),
    ]


class MoveTable:
    """Functions of family "move"; a slot that the loaded build lacks raises Unsupported."""

    FAMILY: ClassVar[str] = "move"
    MAJOR: ClassVar[int] = MOVE_MAJOR
    MINOR: ClassVar[int] = MOVE_MINOR
    TABLE_SIZE: ClassVar[int] = 56
    SLOTS: ClassVar[Slots] = (
        ("holdings", 8, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)),
        ("quiesce", 16, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("resume", 24, CFUNCTYPE(c_int32, c_void_p, c_void_p)),
        ("export_state", 32, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("import_state", 40, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("retire", 48, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
    )

    holdings: Slot
    quiesce: Slot
    resume: Slot
    export_state: Slot
    import_state: Slot
    retire: Slot


class Moved(Structure):
    """struct convoy_moved, 40 bytes."""

    struct_size: int
    written_bytes: int
    objects: Any
    object_stride: int
    object_capacity: int
    object_count: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("objects", c_void_p),
        ("object_stride", c_size_t),
        ("object_capacity", c_size_t),
        ("object_count", c_size_t),
    ]


class MovedObject(Structure):
    """struct convoy_moved_object, 24 bytes."""

    old_handle: int
    new_handle: int
    kind: int
    reserved: int

    _fields_ = [
        ("old_handle", c_uint64),
        ("new_handle", c_uint64),
        ("kind", c_uint32),
        ("reserved", c_uint32),
    ]


class Payload(Structure):
    """struct convoy_payload, 144 bytes."""

    struct_size: int
    written_bytes: int
    tensors: Any
    tensor_stride: int
    tensor_capacity: int
    tensor_count: int
    lists: Any
    list_stride: int
    list_capacity: int
    list_count: int
    request: Any
    request_length: int
    scalars: Any
    scalars_length: int
    session: Any
    session_length: int
    payload_bytes: int
    attempt: int
    reserved: int
    priority: int
    reserved_2: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("tensors", c_void_p),
        ("tensor_stride", c_size_t),
        ("tensor_capacity", c_size_t),
        ("tensor_count", c_size_t),
        ("lists", c_void_p),
        ("list_stride", c_size_t),
        ("list_capacity", c_size_t),
        ("list_count", c_size_t),
        ("request", c_void_p),
        ("request_length", c_size_t),
        ("scalars", c_void_p),
        ("scalars_length", c_size_t),
        ("session", c_void_p),
        ("session_length", c_size_t),
        ("payload_bytes", c_uint64),
        ("attempt", c_uint32),
        ("reserved", c_uint32),
        ("priority", c_int32),
        ("reserved_2", c_uint32),
    ]


class PeerInfo(Structure):
    """struct convoy_peer_info, 176 bytes."""

    struct_size: int
    written_bytes: int
    state: int
    locality: int
    incarnation: int
    pool_bytes: int
    sent_bytes: int
    received_bytes: int
    session: bytes

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("state", c_uint32),
        ("locality", c_uint32),
        ("incarnation", c_uint64),
        ("pool_bytes", c_uint64),
        ("sent_bytes", c_uint64),
        ("received_bytes", c_uint64),
        ("session", c_char * 128),
    ]


class PluginInfo(Structure):
    """struct convoy_plugin_info, 88 bytes."""

    struct_size: int
    written_bytes: int
    answers: Any
    answer_stride: int
    answer_capacity: int
    answer_count: int
    manifest: Any
    manifest_length: int
    release: Any
    release_length: int
    build_id: Any
    build_id_length: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("answers", c_void_p),
        ("answer_stride", c_size_t),
        ("answer_capacity", c_size_t),
        ("answer_count", c_size_t),
        ("manifest", c_void_p),
        ("manifest_length", c_size_t),
        ("release", c_void_p),
        ("release_length", c_size_t),
        ("build_id", c_void_p),
        ("build_id_length", c_size_t),
    ]


class PollCall(Structure):
    """struct convoy_poll_call, 56 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    votes: int
    lists: Any
    list_stride: int
    list_count: int
    tag: int
    error_reason: int
    reserved: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("votes", c_uint32),
        ("lists", c_void_p),
        ("list_stride", c_size_t),
        ("list_count", c_size_t),
        ("tag", c_uint64),
        ("error_reason", c_int32),
        ("reserved", c_uint32),
    ]


class PollConsensus(Structure):
    """struct convoy_poll_consensus, 56 bytes."""

    struct_size: int
    success_state: int
    ids: Any
    id_count: int
    good: Any
    good_count: int
    bad: Any
    bad_count: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("success_state", c_uint32),
        ("ids", c_void_p),
        ("id_count", c_size_t),
        ("good", c_void_p),
        ("good_count", c_size_t),
        ("bad", c_void_p),
        ("bad_count", c_size_t),
    ]


class PollFault(Structure):
    """struct convoy_poll_fault, 16 bytes."""

    round: int
    list: int
    entry: int

    _fields_ = [
        ("round", c_uint64),
        ("list", c_uint32),
        ("entry", c_uint32),
    ]


class PollFaults(Structure):
    """struct convoy_poll_faults, 40 bytes."""

    struct_size: int
    probability_ppm: int
    seed: int
    script: Any
    script_stride: int
    script_count: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("probability_ppm", c_uint32),
        ("seed", c_uint64),
        ("script", c_void_p),
        ("script_stride", c_size_t),
        ("script_count", c_size_t),
    ]


class PollList(Structure):
    """struct convoy_poll_list, 136 bytes."""

    name: Any
    name_length: int
    count: int
    states: Any
    state_stride: int
    state_bytes: int
    flags: int
    keys: Any
    generations: Any
    digest: int
    entry_flags: Any
    gate: int
    reserved: int
    stamps: Any
    stamp_stride: int
    gate_deadlines_ns: Any
    advance: Any
    read: Any
    user: Any

    _fields_ = [
        ("name", c_void_p),
        ("name_length", c_size_t),
        ("count", c_size_t),
        ("states", c_void_p),
        ("state_stride", c_size_t),
        ("state_bytes", c_uint32),
        ("flags", c_uint32),
        ("keys", c_void_p),
        ("generations", c_void_p),
        ("digest", c_uint64),
        ("entry_flags", c_void_p),
        ("gate", c_uint32),
        ("reserved", c_uint32),
        ("stamps", c_void_p),
        ("stamp_stride", c_size_t),
        ("gate_deadlines_ns", c_void_p),
        ("advance", c_void_p),
        ("read", c_void_p),
        ("user", c_void_p),
    ]


class PollListResult(Structure):
    """struct convoy_poll_list_result, 72 bytes."""

    states: Any
    states_capacity: int
    outcomes: Any
    outcome_stride: int
    outcome_capacity: int
    states_count: int
    outcome_count: int
    foreign_count: int
    injected_count: int
    unknown_count: int
    demoted_count: int

    _fields_ = [
        ("states", c_void_p),
        ("states_capacity", c_size_t),
        ("outcomes", c_void_p),
        ("outcome_stride", c_size_t),
        ("outcome_capacity", c_size_t),
        ("states_count", c_size_t),
        ("outcome_count", c_size_t),
        ("foreign_count", c_uint32),
        ("injected_count", c_uint32),
        ("unknown_count", c_uint32),
        ("demoted_count", c_uint32),
    ]


class PollOutcome(Structure):
    """struct convoy_poll_outcome, 16 bytes."""

    key: int
    generation: int
    listed_by: int
    state: int
    flags: int

    _fields_ = [
        ("key", c_uint64),
        ("generation", c_uint32),
        ("listed_by", c_uint16),
        ("state", c_uint8),
        ("flags", c_uint8),
    ]


class PollResult(Structure):
    """struct convoy_poll_result, 64 bytes."""

    struct_size: int
    written_bytes: int
    lists: Any
    list_stride: int
    list_capacity: int
    report: Any
    votes_and: int
    votes_or: int
    round: int
    epoch: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("lists", c_void_p),
        ("list_stride", c_size_t),
        ("list_capacity", c_size_t),
        ("report", c_void_p),
        ("votes_and", c_uint32),
        ("votes_or", c_uint32),
        ("round", c_uint64),
        ("epoch", c_uint64),
    ]


class PollStamp(Structure):
    """struct convoy_poll_stamp, 16 bytes."""

    key: int
    generation: int
    has_generation: int

    _fields_ = [
        ("key", c_uint64),
        ("generation", c_uint32),
        ("has_generation", c_uint32),
    ]


class PollTable:
    """Functions of family "poll"; a slot that the loaded build lacks raises Unsupported."""

    FAMILY: ClassVar[str] = "poll"
    MAJOR: ClassVar[int] = POLL_MAJOR
    MINOR: ClassVar[int] = POLL_MINOR
    TABLE_SIZE: ClassVar[int] = 80
    SLOTS: ClassVar[Slots] = (
        ("reduce_start", 8, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("reduce_test", 16, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("reduce_wait", 24, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64, c_void_p, c_void_p)),
        ("reduce", 32, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("reduce2_start", 40, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("reduce2_test", 48, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("reduce2_wait", 56, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64, c_void_p, c_void_p)),
        ("reduce2_abandon", 64, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("consensus", 72, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)),
    )

    reduce_start: Slot
    reduce_test: Slot
    reduce_wait: Slot
    reduce: Slot
    reduce2_start: Slot
    reduce2_test: Slot
    reduce2_wait: Slot
    reduce2_abandon: Slot
    consensus: Slot


class Raw(Structure):
    """struct convoy_raw, 40 bytes."""

    struct_size: int
    critical_flags: int
    peer: int
    pieces: Any
    piece_stride: int
    piece_count: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("peer", c_uint64),
        ("pieces", c_void_p),
        ("piece_stride", c_size_t),
        ("piece_count", c_size_t),
    ]


class RawPiece(Structure):
    """struct convoy_raw_piece, 24 bytes."""

    source: Any
    target: int
    bytes: int

    _fields_ = [
        ("source", c_void_p),
        ("target", c_uint64),
        ("bytes", c_uint64),
    ]


class ReopenResult(Structure):
    """struct convoy_reopen_result, 40 bytes."""

    struct_size: int
    written_bytes: int
    epoch: int
    next_round: int
    recovered: int
    lost_count: int
    reserved: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("epoch", c_uint64),
        ("next_round", c_uint64),
        ("recovered", c_uint64),
        ("lost_count", c_uint32),
        ("reserved", c_uint32),
    ]


class Report(Structure):
    """struct convoy_report, 72 bytes."""

    struct_size: int
    written_bytes: int
    members: Any
    member_stride: int
    member_capacity: int
    member_count: int
    own_rank: int
    field: int
    round: int
    elapsed_ns: int
    operation: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("members", c_void_p),
        ("member_stride", c_size_t),
        ("member_capacity", c_size_t),
        ("member_count", c_size_t),
        ("own_rank", c_int32),
        ("field", c_uint32),
        ("round", c_uint64),
        ("elapsed_ns", c_uint64),
        ("operation", c_uint64),
    ]


class Reservation(Structure):
    """struct convoy_reservation, 64 bytes."""

    struct_size: int
    written_bytes: int
    slots: Any
    slot_stride: int
    slot_capacity: int
    slot_count: int
    free_bytes: int
    largest_free_bytes: int
    retry_after_ms: int
    reserved: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("slots", c_void_p),
        ("slot_stride", c_size_t),
        ("slot_capacity", c_size_t),
        ("slot_count", c_size_t),
        ("free_bytes", c_uint64),
        ("largest_free_bytes", c_uint64),
        ("retry_after_ms", c_uint32),
        ("reserved", c_uint32),
    ]


class Reserve(Structure):
    """struct convoy_reserve, 64 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    attempt: int
    request: Any
    request_length: int
    bytes: Any
    count: int
    prealloc: int
    slot_id: int
    lease_ns: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("attempt", c_uint32),
        ("request", c_void_p),
        ("request_length", c_size_t),
        ("bytes", c_void_p),
        ("count", c_size_t),
        ("prealloc", c_uint32),
        ("slot_id", c_uint32),
        ("lease_ns", c_uint64),
    ]


class ReservedSlot(Structure):
    """struct convoy_reserved_slot, 40 bytes."""

    transfer: int
    address: Any
    offset: int
    bytes: int
    slot_id: int
    reserved: int

    _fields_ = [
        ("transfer", c_uint64),
        ("address", c_void_p),
        ("offset", c_uint64),
        ("bytes", c_uint64),
        ("slot_id", c_uint32),
        ("reserved", c_uint32),
    ]


class Send(Structure):
    """struct convoy_send, 64 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    path: int
    peer: int
    staged: int
    address: int
    timeout_ns: int
    retries: int
    reserved: int
    priority: int
    reserved_2: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("path", c_uint32),
        ("peer", c_uint64),
        ("staged", c_uint64),
        ("address", c_uint64),
        ("timeout_ns", c_uint64),
        ("retries", c_uint32),
        ("reserved", c_uint32),
        ("priority", c_int32),
        ("reserved_2", c_uint32),
    ]


class Stage(Structure):
    """struct convoy_stage, 152 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    attempt: int
    request: Any
    request_length: int
    tensors: Any
    tensor_stride: int
    tensor_count: int
    lists: Any
    list_stride: int
    list_count: int
    scalars: Any
    scalars_length: int
    ready: Any
    user: Any
    stream: Any
    event: Any
    timeout_ns: int
    lease_ns: int
    priority: int
    reserved_2: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("attempt", c_uint32),
        ("request", c_void_p),
        ("request_length", c_size_t),
        ("tensors", c_void_p),
        ("tensor_stride", c_size_t),
        ("tensor_count", c_size_t),
        ("lists", c_void_p),
        ("list_stride", c_size_t),
        ("list_count", c_size_t),
        ("scalars", c_void_p),
        ("scalars_length", c_size_t),
        ("ready", c_void_p),
        ("user", c_void_p),
        ("stream", c_void_p),
        ("event", c_void_p),
        ("timeout_ns", c_uint64),
        ("lease_ns", c_uint64),
        ("priority", c_int32),
        ("reserved_2", c_uint32),
    ]


class SyncCall(Structure):
    """struct convoy_sync_call, 80 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    votes: int
    row: Any
    row_stride: int
    active: Any
    active_count: int
    mask_version: int
    tag: int
    policy: int
    error_reason: int
    slot: int
    reserved: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("votes", c_uint32),
        ("row", c_void_p),
        ("row_stride", c_size_t),
        ("active", c_void_p),
        ("active_count", c_size_t),
        ("mask_version", c_uint64),
        ("tag", c_uint64),
        ("policy", c_uint32),
        ("error_reason", c_int32),
        ("slot", c_uint32),
        ("reserved", c_uint32),
    ]


class SyncColumn(Structure):
    """struct convoy_sync_column, 40 bytes."""

    name: Any
    name_length: int
    fallback: int
    ignored: int
    reduction: int
    flags: int

    _fields_ = [
        ("name", c_void_p),
        ("name_length", c_size_t),
        ("fallback", c_int64),
        ("ignored", c_int64),
        ("reduction", c_uint32),
        ("flags", c_uint32),
    ]


class SyncPadded(Structure):
    """struct convoy_sync_padded, 56 bytes."""

    struct_size: int
    written_bytes: int
    starts: Any
    lengths: Any
    capacity: int
    extent: int
    figure: int
    eligible: int
    reason: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("starts", c_void_p),
        ("lengths", c_void_p),
        ("capacity", c_size_t),
        ("extent", c_int64),
        ("figure", c_int64),
        ("eligible", c_uint32),
        ("reason", c_uint32),
    ]


class SyncPadding(Structure):
    """struct convoy_sync_padding, 48 bytes."""

    struct_size: int
    layout: int
    tokens: Any
    token_count: int
    captures: Any
    capture_count: int
    limit: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("layout", c_uint32),
        ("tokens", c_void_p),
        ("token_count", c_size_t),
        ("captures", c_void_p),
        ("capture_count", c_size_t),
        ("limit", c_int64),
    ]


class SyncReduced(Structure):
    """struct convoy_sync_reduced, 16 bytes."""

    value: int
    agreed: int
    reserved: int

    _fields_ = [
        ("value", c_int64),
        ("agreed", c_uint32),
        ("reserved", c_uint32),
    ]


class SyncResult(Structure):
    """struct convoy_sync_result, 128 bytes."""

    struct_size: int
    written_bytes: int
    table: Any
    table_capacity: int
    first: Any
    first_capacity: int
    reduced: Any
    reduced_capacity: int
    reduced_stride: int
    presence: Any
    presence_capacity: int
    report: Any
    votes_and: int
    votes_or: int
    round: int
    epoch: int
    mask_version: int
    mask_skew: int
    width: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("table", c_void_p),
        ("table_capacity", c_size_t),
        ("first", c_void_p),
        ("first_capacity", c_size_t),
        ("reduced", c_void_p),
        ("reduced_capacity", c_size_t),
        ("reduced_stride", c_size_t),
        ("presence", c_void_p),
        ("presence_capacity", c_size_t),
        ("report", c_void_p),
        ("votes_and", c_uint32),
        ("votes_or", c_uint32),
        ("round", c_uint64),
        ("epoch", c_uint64),
        ("mask_version", c_uint64),
        ("mask_skew", c_uint32),
        ("width", c_uint32),
    ]


class SyncSchema(Structure):
    """struct convoy_sync_schema, 48 bytes."""

    struct_size: int
    critical_flags: int
    builtin: Any
    builtin_length: int
    columns: Any
    column_stride: int
    column_count: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("builtin", c_void_p),
        ("builtin_length", c_size_t),
        ("columns", c_void_p),
        ("column_stride", c_size_t),
        ("column_count", c_size_t),
    ]


class SyncTable:
    """Functions of family "sync"; a slot that the loaded build lacks raises Unsupported."""

    FAMILY: ClassVar[str] = "sync"
    MAJOR: ClassVar[int] = SYNC_MAJOR
    MINOR: ClassVar[int] = SYNC_MINOR
    TABLE_SIZE: ClassVar[int] = 56
    SLOTS: ClassVar[Slots] = (
        ("gather_start", 8, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("gather_test", 16, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("gather_wait", 24, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64, c_void_p, c_void_p)),
        ("gather", 32, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("padded_size", 40, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)),
        ("starts", 48, CFUNCTYPE(c_int32, c_void_p, c_int64, c_void_p, c_void_p)),
    )

    gather_start: Slot
    gather_test: Slot
    gather_wait: Slot
    gather: Slot
    padded_size: Slot
    starts: Slot


class TableHeader(Structure):
    """struct convoy_table_header, 8 bytes."""

    table_size: int
    major: int
    minor: int

    _fields_ = [
        ("table_size", c_uint32),
        ("major", c_uint16),
        ("minor", c_uint16),
    ]


class TensorListEntry(Structure):
    """struct convoy_tensor_list_entry, 24 bytes."""

    name: Any
    name_length: int
    length: int
    reserved: int

    _fields_ = [
        ("name", c_void_p),
        ("name_length", c_size_t),
        ("length", c_uint32),
        ("reserved", c_uint32),
    ]


class TensorSource(Structure):
    """struct convoy_tensor_source, 80 bytes."""

    name: Any
    name_length: int
    dtype: Any
    dtype_length: int
    data: Any
    shape: Any
    strides: Any
    bytes: int
    rank: int
    flags: int
    list_index: int
    reserved: int

    _fields_ = [
        ("name", c_void_p),
        ("name_length", c_size_t),
        ("dtype", c_void_p),
        ("dtype_length", c_size_t),
        ("data", c_void_p),
        ("shape", c_void_p),
        ("strides", c_void_p),
        ("bytes", c_uint64),
        ("rank", c_uint32),
        ("flags", c_uint32),
        ("list_index", c_uint32),
        ("reserved", c_uint32),
    ]


class TensorView(Structure):
    """struct convoy_tensor_view, 80 bytes."""

    name: Any
    name_length: int
    dtype: Any
    dtype_length: int
    data: Any
    shape: Any
    bytes: int
    offset: int
    rank: int
    flags: int
    list_index: int
    reserved: int

    _fields_ = [
        ("name", c_void_p),
        ("name_length", c_size_t),
        ("dtype", c_void_p),
        ("dtype_length", c_size_t),
        ("data", c_void_p),
        ("shape", c_void_p),
        ("bytes", c_uint64),
        ("offset", c_uint64),
        ("rank", c_uint32),
        ("flags", c_uint32),
        ("list_index", c_uint32),
        ("reserved", c_uint32),
    ]


class TextBuffer(Structure):
    """struct convoy_text_buffer, 32 bytes."""

    struct_size: int
    written_bytes: int
    data: Any
    capacity: int
    length: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("data", c_void_p),
        ("capacity", c_size_t),
        ("length", c_size_t),
    ]


class TransferAnswer(Structure):
    """struct convoy_transfer_answer, 32 bytes."""

    struct_size: int
    written_bytes: int
    state: int
    attempt: int
    status: int
    is_drained: int
    transfer: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("state", c_uint32),
        ("attempt", c_uint32),
        ("status", c_int32),
        ("is_drained", c_uint32),
        ("transfer", c_uint64),
    ]


class TransferOptions(Structure):
    """struct convoy_transfer_options, 112 bytes."""

    struct_size: int
    critical_flags: int
    hint_flags: int
    pool_kind: int
    address: Any
    address_length: int
    pool_memory: Any
    pool_bytes: int
    pool_block_bytes: int
    lease_ns: int
    transfer_max: int
    peer_max: int
    prealloc_count: int
    reserved: int
    prealloc_bytes: int
    device: int
    device_number: int
    device_table: Any
    bounce_bytes: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("critical_flags", c_uint32),
        ("hint_flags", c_uint32),
        ("pool_kind", c_uint32),
        ("address", c_void_p),
        ("address_length", c_size_t),
        ("pool_memory", c_void_p),
        ("pool_bytes", c_uint64),
        ("pool_block_bytes", c_uint64),
        ("lease_ns", c_uint64),
        ("transfer_max", c_uint32),
        ("peer_max", c_uint32),
        ("prealloc_count", c_uint32),
        ("reserved", c_uint32),
        ("prealloc_bytes", c_uint64),
        ("device", c_uint32),
        ("device_number", c_uint32),
        ("device_table", c_void_p),
        ("bounce_bytes", c_uint64),
    ]


class TransferQuery(Structure):
    """struct convoy_transfer_query, 32 bytes."""

    struct_size: int
    attempt: int
    request: Any
    request_length: int
    peer: int

    _fields_ = [
        ("struct_size", c_uint32),
        ("attempt", c_uint32),
        ("request", c_void_p),
        ("request_length", c_size_t),
        ("peer", c_uint64),
    ]


class TransferResult(Structure):
    """struct convoy_transfer_result, 152 bytes."""

    struct_size: int
    written_bytes: int
    state: int
    path: int
    status: int
    attempt: int
    retries: int
    retry_after_ms: int
    is_source_free: int
    slot_id: int
    peer: int
    payload_bytes: int
    moved_bytes: int
    address: Any
    slot_offset: int
    slot_bytes: int
    times_ns: Any

    _fields_ = [
        ("struct_size", c_uint32),
        ("written_bytes", c_uint32),
        ("state", c_uint32),
        ("path", c_uint32),
        ("status", c_int32),
        ("attempt", c_uint32),
        ("retries", c_uint32),
        ("retry_after_ms", c_uint32),
        ("is_source_free", c_uint32),
        ("slot_id", c_uint32),
        ("peer", c_uint64),
        ("payload_bytes", c_uint64),
        ("moved_bytes", c_uint64),
        ("address", c_void_p),
        ("slot_offset", c_uint64),
        ("slot_bytes", c_uint64),
        ("times_ns", c_uint64 * 8),
    ]


class TransferTable:
    """Functions of family "transfer"; a slot that the loaded build lacks raises Unsupported."""

    FAMILY: ClassVar[str] = "transfer"
    MAJOR: ClassVar[int] = TRANSFER_MAJOR
    MINOR: ClassVar[int] = TRANSFER_MINOR
    TABLE_SIZE: ClassVar[int] = 240
    SLOTS: ClassVar[Slots] = (
        ("engine_open", 8, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("engine_close", 16, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("engine_info", 24, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)),
        ("engine_describe", 32, CFUNCTYPE(c_int32, c_void_p, c_uint32, c_void_p, c_void_p)),
        ("pool_figures", 40, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)),
        ("pool_fits", 48, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_void_p)),
        ("pool_resize", 56, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("peer_connect", 64, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_uint64, c_void_p, c_void_p)),
        ("peer_disconnect", 72, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("peer_info", 80, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("stage_start", 88, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("descriptor", 96, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint32, c_void_p, c_void_p)),
        ("send_start", 104, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("accept_start", 112, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("load_start", 120, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("transfer_test", 128, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("transfer_wait", 136, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_uint64, c_void_p, c_void_p)),
        ("send", 144, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("accept", 152, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("payload", 160, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("release", 168, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p)),
        ("abort", 176, CFUNCTYPE(c_int32, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p)),
        ("reserve", 184, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p, c_void_p)),
        ("query", 192, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64, c_void_p, c_void_p)),
        ("completions", 200, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t, c_size_t, c_void_p, c_void_p)),
        ("memory_register", 208, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64, c_void_p)),
        ("memory_deregister", 216, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64, c_void_p)),
        ("transfer_sync", 224, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_uint64, c_void_p)),
        ("admission_set", 232, CFUNCTYPE(c_int32, c_void_p, c_void_p, c_void_p)),
    )

    engine_open: Slot
    engine_close: Slot
    engine_info: Slot
    engine_describe: Slot
    pool_figures: Slot
    pool_fits: Slot
    pool_resize: Slot
    peer_connect: Slot
    peer_disconnect: Slot
    peer_info: Slot
    stage_start: Slot
    descriptor: Slot
    send_start: Slot
    accept_start: Slot
    load_start: Slot
    transfer_test: Slot
    transfer_wait: Slot
    send: Slot
    accept: Slot
    payload: Slot
    release: Slot
    abort: Slot
    reserve: Slot
    query: Slot
    completions: Slot
    memory_register: Slot
    memory_deregister: Slot
    transfer_sync: Slot
    admission_set: Slot


SIZES = {  # bytes of each struct in the headers
    Admission: 48,
    Completion: 16,
    ContextConfig: 64,
    DeviceTable: 112,
    EngineFigures: 152,
    EngineInfo: 216,
    Error: 288,
    ExportOptions: 16,
    ExportedState: 24,
    FamilyAnswer: 144,
    FamilyRequest: 24,
    GroupInfo: 64,
    GroupOptions: 144,
    Holdings: 56,
    HostInfo: 56,
    Load: 112,
    MemberReport: 96,
    MemoryInfo: 16,
    Moved: 40,
    MovedObject: 24,
    Payload: 144,
    PeerInfo: 176,
    PluginInfo: 88,
    PollCall: 56,
    PollConsensus: 56,
    PollFault: 16,
    PollFaults: 40,
    PollList: 136,
    PollListResult: 72,
    PollOutcome: 16,
    PollResult: 64,
    PollStamp: 16,
    Raw: 40,
    RawPiece: 24,
    ReopenResult: 40,
    Report: 72,
    Reservation: 64,
    Reserve: 64,
    ReservedSlot: 40,
    Send: 64,
    Stage: 152,
    SyncCall: 80,
    SyncColumn: 40,
    SyncPadded: 56,
    SyncPadding: 48,
    SyncReduced: 16,
    SyncResult: 128,
    SyncSchema: 48,
    TableHeader: 8,
    TensorListEntry: 24,
    TensorSource: 80,
    TensorView: 80,
    TextBuffer: 32,
    TransferAnswer: 32,
    TransferOptions: 112,
    TransferQuery: 32,
    TransferResult: 152,
}
