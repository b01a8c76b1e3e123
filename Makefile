# SPDX-License-Identifier: Apache-2.0
# convoy: plain make. `make help` lists the targets.

.DEFAULT_GOAL := all
SHELL := /bin/bash

RELEASE := 1.1.0
PREFIX ?= /usr/local
DESTDIR ?=
VARIANT ?= release
CC ?= cc
ifeq ($(origin CC),default)
CC := gcc
endif
WERROR ?= 0
DEPS ?= yes
TRACE ?=
TENSORS ?=
SWAP ?=
RUN_ARGS ?=

# -- sources, by layer, sorted ------------------------------------------------------------------------------------

CORE_SOURCES := bundle copy copy_choice cpu error fault latency log memory negotiate settings status utf8
NET_SOURCES := auth bootstrap bulk bulk_describe bulk_notice bulk_peer bulk_pump bulk_receive bulk_rma bulk_send bulk_stream bulk_wire dial fd_channel frame gather handshake hello host_map interfaces lanes link link_connect link_describe link_lanes link_pieces link_queue link_rma link_send listener listener_port liveness local local_join local_roll local_serve local_socket message rendezvous roster runtime shared_file star_client star_loop star_server ucx ucx_config ucx_describe ucx_guard ucx_library ucx_resources
ROUND_SOURCES := call_log call_log_json collect degrade dump engine engine_move engine_restore fingerprint finish operation partial quick remote remote_move remote_open remote_peers remote_promise remote_reopen remote_restore remote_rewire remote_round remote_save remote_status remote_wire reopen report report_text schedule seal seat segment stall stats stats_prometheus wait
POLL_SOURCES := alike capture check consensus contribute decided gate inject keyed order outcome payload poll poll_last poll_move positional \
                quick quick_keyed result states_wide table two_level
SYNC_SOURCES := alone deliver derive gather grid intake mask padding placement quick row schema sync sync_move
POOL_SOURCES := buddy lease lease_move part pool pool_move renew
DEVICE_SOURCES := cuda cuda_library device host ranges streamed table ticket
WIRE_SOURCES := control_decode control_encode control_schema control_table control_value dtype json json_string manifest manifest_binary \
                manifest_check manifest_json name scalars writer
XFER_SOURCES := admission admission_text calls connect copying describe descriptor descriptor_json device_jobs device_load device_open device_stage door door_files engine engine_options entries extents far far_again far_connect far_land far_move far_open far_outbox far_push far_put far_raw far_rewire far_rma far_save hear introduce landing load load_start look move move_count move_entry move_figures move_peer move_state move_tables move_window near notice orders peers progress ranges raw resize raw_copy raw_in raw_window ring send session share share_files slots stage stage_manifest state stats stats_prometheus view waiting window
PLUGIN_SOURCES := build_id context describe engine_move group group_close group_move group_open group_options group_state handle handover manifest move move_state query record record_move record_sync report_in sized table_core table_move table_poll table_sync table_transfer text transfer_engine transfer_in transfer_out
LOAD_SOURCES := build config digest elf_file elf_parts elf_source gate handles host_core host_poll host_sync host_transfer inspect library loader manifest mapped requests search swap swap_move swap_prepare swap_switch tables
CLI_SOURCES := arrival arrival_write board compat compat_folder compat_judge compat_print compat_side crew doctor doctor_device doctor_page doctor_plugin doctor_system dtype_names histogram inbox inspect main options outbox parcel perf perf_call perf_memory perf_rank perf_transfer perf_transfer_load perf_transfer_phases perf_transfer_report perf_transfer_side pipeline pipeline_board pipeline_figures pipeline_report pipeline_role pipeline_setup pipeline_shape pipeline_swap pipeline_trace pipeline_work place plain_host plan progress rank replay report report_swap run run_check run_fault run_log run_options run_swap safetensors safetensors_compare safetensors_parse safetensors_write scheduler serving_host swapper tensor_fields tensors_default trace transfer_host two_hosts version
REFERENCE_SOURCES := check log main shard table walk
CLI_UNIT_TESTS := crew histogram options place plan reference run_fault run_log run_options run_report run_swap scheduler trace

UNIT_TESTS := auth bootstrap bootstrap_callback bootstrap_leave bootstrap_memory bootstrap_refusal bulk bulk_death bulk_rma bulk_threads bulk_wire bundle call_log cell clock deliver derive dial elf_file engine fd_channel fingerprint frame gather grid hello host host_map inspect intake lanes latency link link_close link_namespaces link_peers liveness loader local local_processes local_serve local_socket log mapped mask message negotiate padding partial placement query ranks rendezvous roster row runtime schedule schema segment settings shared_file sized stall stats status sync sync_rounds ucx ucx_config ucx_guard ucx_resources
UNIT_TESTS += $(CLI_UNIT_TESTS)
UNIT_TESTS += host_gate swap swap_calls swap_files swap_threads
# Unit tests of what lies on the round engine, with all members in one thread (tests/lib/fake_engine.c).
FAKE_ENGINE_TESTS := poll poll_equivalence poll_keyed poll_random two_level
UNIT_TESTS += $(FAKE_ENGINE_TESTS)
# Unit tests of the round engine across hosts, with all members in one thread (tests/lib/fake_hosts.c, fake_link.c).
FAKE_LINK_TESTS := degrade remote_move remote_reopen remote_status remote_wire
UNIT_TESTS += $(FAKE_LINK_TESTS)
UNIT_TESTS += buddy copy far_hostile extents copy_choice lease pool pool_renew reader ring xfer_descriptor xfer_peers xfer_share xfer_state xfer_wire landing far_orders far_move waiting
DEVICE_TESTS := device device_cuda device_host device_order device_ranges device_sweep device_table
UNIT_TESTS += $(DEVICE_TESTS)
# Unit tests of bulk with both sides in one thread (tests/lib/fake_wire.c).
FAKE_WIRE_TESTS := bulk_pump bulk_receive bulk_stream
UNIT_TESTS += $(FAKE_WIRE_TESTS)
UNIT_TESTS += control control_golden dtype json manifest manifest_binary manifest_json name scalars
UNIT_TESTS += safetensors safetensors_compare safetensors_write tensor_fields tensors_default
UNIT_TESTS += capture check consensus decided gate inject keyed order outcome payload positional states wire
UNIT_TESTS += elf_parts group_move group_options handle link_send load_tables memory record record_sync stamp tables tables_pair text
UNIT_TESTS += board compat doctor doctor_page doctor_system perf plain_host progress replay run run_check two_hosts version
UNIT_TESTS += diverged poll_quick poll_quick_keyed remote remote_move_ucx reopen report sync_quick wait
UNIT_TESTS += arrival dtype_names inbox outbox parcel perf_transfer pipeline pipeline_board pipeline_figures pipeline_report pipeline_setup pipeline_shape pipeline_trace pipeline_work transfer_host
CONFORMANCE_TESTS := conformance_namespaces conformance_shared_memory conformance_threads conformance_ucx
CONFORMANCE_SOURCES := cases_alike cases_between cases_failure cases_keyed cases_loss cases_mixed cases_round suite
INTEGRATION_TESTS := alone counts equivalence newer_peer random_rounds reports_cost reports_keyed reports_net reports_plugin reports_poll reports_stamps reports_sync slices timeout_report waits_closed
INTEGRATION_SCRIPTS := run_transfer run_cli run_swap abi_freeze doctor_cli install package_list readme_example readme_settings suite_lanes
FAULT_TESTS := hosts kill_points random signals
FAULT_SOURCES := party
ABI_TESTS := engine_states golden hygiene load
FUZZERS := descriptor elf hello manifest message poll_payload round safetensors sync_payload
BENCH_SOURCES := options process work
TEST_LIB_SOURCES := allgather crowd describe exchange expect exposition fake_round hosts plugin random_scene rank ranks rows scenarios scene swap_rank tasks engines engine_moves far_hosts kinds sim_host
UNIT_LIB_SOURCES := device_case linknode neighbours poll_pair ucx_case bulknode fake_transfer
TEST_SHIMS := global_ucp old_ucp

# -- flags ---------------------------------------------------------------------------------------------------------

# The release variant puts the library, the command and the loader straight under build/, others under build/<variant>.
OBJ := build/$(VARIANT)/obj
ifeq ($(VARIANT),release)
BIN := build
else
BIN := build/$(VARIANT)
endif
TEST_BIN := build/$(VARIANT)/tests

WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wswitch-enum -Wformat=2
ifeq ($(WERROR),1)
WARNINGS += -Werror
endif
CPPFLAGS += -D_GNU_SOURCE -DCONVOY_RELEASE='"$(RELEASE)"' -Iinclude -Isrc -Iplugin -I.
CFLAGS ?= -O2 -g
CONVOY_CFLAGS := -std=c11 -fPIC -fvisibility=hidden -fno-plt -fno-common $(WARNINGS)
LINK_UNDEFINED := -Wl,-z,defs

# Variants. Test variants carry the fault hooks and the run-time checks of the thread and state tags. Sanitizers name lines
# and functions only (-g1); for a debugger there is debug.
ifeq ($(VARIANT),debug)
CPPFLAGS += -DCONVOY_DEBUG -DCONVOY_FAULTS
CFLAGS := -O1 -g
else ifeq ($(VARIANT),asan)
CPPFLAGS += -DCONVOY_DEBUG -DCONVOY_FAULTS
CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
LINK_UNDEFINED :=
else ifeq ($(VARIANT),tsan)
CPPFLAGS += -DCONVOY_DEBUG -DCONVOY_FAULTS
CFLAGS := -O1 -g1 -fno-omit-frame-pointer -fsanitize=thread
LINK_UNDEFINED :=
else ifeq ($(VARIANT),mutation)
CPPFLAGS += -DCONVOY_MUTATIONS -DCONVOY_FAULTS
CFLAGS := -O1 -g
else ifeq ($(VARIANT),fuzz)
CC := clang
CPPFLAGS += -DCONVOY_DEBUG -DCONVOY_FAULTS
CFLAGS := -O1 -g -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address
LINK_UNDEFINED :=
else ifeq ($(VARIANT),coverage)
CPPFLAGS += -DCONVOY_DEBUG -DCONVOY_FAULTS -DCONVOY_COVERAGE
CFLAGS := -O0 -g --coverage
else ifeq ($(VARIANT),clang)
CC := clang
else ifeq ($(VARIANT),aarch64)
# Objects only. The headers of jansson, sodium, xxhash and UCX are the same for every machine; glibc's come first.
CC := aarch64-linux-gnu-gcc
CPPFLAGS += -idirafter /usr/include
else ifneq ($(VARIANT),release)
$(error unknown VARIANT $(VARIANT): release, debug, asan, tsan, mutation, fuzz, coverage, clang, aarch64)
endif

objects = $(patsubst %,$(OBJ)/%.o,$(1))
CORE_OBJECTS := $(call objects,$(addprefix src/core/,$(CORE_SOURCES)))
NET_OBJECTS := $(call objects,$(addprefix src/net/,$(NET_SOURCES)))
ROUND_OBJECTS := $(call objects,$(addprefix src/round/,$(ROUND_SOURCES)))
POLL_OBJECTS := $(call objects,$(addprefix src/poll/,$(POLL_SOURCES)))
SYNC_OBJECTS := $(call objects,$(addprefix src/sync/,$(SYNC_SOURCES)))
POOL_OBJECTS := $(call objects,$(addprefix src/pool/,$(POOL_SOURCES)))
DEVICE_OBJECTS := $(call objects,$(addprefix src/device/,$(DEVICE_SOURCES)))
WIRE_OBJECTS := $(call objects,$(addprefix src/wire/,$(WIRE_SOURCES)))
XFER_OBJECTS := $(call objects,$(addprefix src/xfer/,$(XFER_SOURCES)))
PLUGIN_OBJECTS := $(call objects,$(addprefix plugin/,$(PLUGIN_SOURCES)))
LOAD_OBJECTS := $(call objects,$(addprefix src/load/,$(LOAD_SOURCES)))
CLI_OBJECTS := $(call objects,$(addprefix src/cli/,$(CLI_SOURCES)))
TEST_LIB_OBJECTS := $(call objects,$(addprefix tests/lib/,$(TEST_LIB_SOURCES)))
# Uses the inside of the library, so unit tests only.
UNIT_LIB_OBJECTS := $(call objects,$(addprefix tests/lib/,$(UNIT_LIB_SOURCES)))
LIB_OBJECTS := $(CORE_OBJECTS) $(NET_OBJECTS) $(ROUND_OBJECTS) $(POLL_OBJECTS) $(SYNC_OBJECTS) $(POOL_OBJECTS) $(DEVICE_OBJECTS) $(WIRE_OBJECTS) $(XFER_OBJECTS) $(PLUGIN_OBJECTS)

# Linked statically and hidden: a host that exports a symbol of the same name must not hijack ours.
STATIC_LIBS := -Wl,-Bstatic -ljansson -lsodium -Wl,-Bdynamic
SYSTEM_LIBS := -ldl -lpthread

.SECONDARY:

.PHONY: all
all: $(BIN)/libconvoy.so.1 $(BIN)/libconvoy_loader.a $(BIN)/convoy $(BIN)/convoy-reference $(BIN)/trace/default.jsonl $(BIN)/tensors/default.safetensors ## build the library, the loader and the command

$(OBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CONVOY_CFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

# Linked beside its place and then moved there: processes that run the old build keep their file.
$(BIN)/libconvoy.so.1: $(LIB_OBJECTS) $(OBJ)/plugin/stdin.o plugin/convoy.map $(OBJ)/stamp
	$(CC) $(CFLAGS) -shared -Wl,-soname,libconvoy.so.1 -Wl,--version-script=plugin/convoy.map -Wl,--exclude-libs,ALL \
	    $(LINK_UNDEFINED) -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro -Wl,--build-id=sha1 $(LIB_OBJECTS) \
	    $(OBJ)/plugin/stdin.o $(STATIC_LIBS) $(SYSTEM_LIBS) -o $@.new
	$(OBJ)/stamp $@.new
	mv $@.new $@

# The same code with another build id: what tests move to and from.
SECOND_BUILD := $(TEST_BIN)/abi/plugins/libconvoy_b.so
$(SECOND_BUILD): $(LIB_OBJECTS) $(OBJ)/plugin/stdin.o plugin/convoy.map $(OBJ)/stamp
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -shared -Wl,-soname,libconvoy.so.1 -Wl,--version-script=plugin/convoy.map -Wl,--exclude-libs,ALL \
	    $(LINK_UNDEFINED) -Wl,-z,nodelete -Wl,-z,now -Wl,-z,relro -Wl,--build-id=0x5ec0d5ec0d5ec0d5ec0d5ec0d5ec0d5ec0d5ec0d \
	    $(LIB_OBJECTS) $(OBJ)/plugin/stdin.o $(STATIC_LIBS) $(SYSTEM_LIBS) -o $@.new
	$(OBJ)/stamp $@.new
	mv $@.new $@

$(OBJ)/stamp: $(OBJ)/src/load/stamp.o $(LOAD_OBJECTS) $(CORE_OBJECTS)
	$(CC) $(CFLAGS) $^ $(STATIC_LIBS) $(SYSTEM_LIBS) -o $@

$(BIN)/libconvoy_loader.a: $(LOAD_OBJECTS) $(CORE_OBJECTS)
	rm -f $@
	ar rcs $@ $^

$(BIN)/convoy: $(CLI_OBJECTS) $(BIN)/libconvoy_loader.a
	$(CC) $(CFLAGS) $(CLI_OBJECTS) $(BIN)/libconvoy_loader.a $(STATIC_LIBS) $(SYSTEM_LIBS) -lm -o $@

# The checker of a replay shares no source with src/, so it is compiled without the include path to it.
REFERENCE_OBJECTS := $(call objects,$(addprefix tests/reference/,$(REFERENCE_SOURCES)))

$(OBJ)/tests/reference/%.o: tests/reference/%.c
	@mkdir -p $(@D)
	$(CC) -D_GNU_SOURCE -Itests $(CONVOY_CFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BIN)/convoy-reference: $(REFERENCE_OBJECTS)
	$(CC) $(CFLAGS) $^ -o $@

$(OBJ)/tests/unit/test_reference.o: CPPFLAGS += -DREFERENCE_PROGRAM='"$(BIN)/convoy-reference"'
$(TEST_BIN)/unit/test_reference: | $(BIN)/convoy-reference

$(OBJ)/tests/unit/test_stamp.o: CPPFLAGS += -DSTAMP_PROGRAM='"$(OBJ)/stamp"'

$(BIN)/trace/default.jsonl: tests/data/trace/default.jsonl
	@mkdir -p $(@D)
	cp $< $@

$(BIN)/tensors/default.safetensors: $(BIN)/convoy
	@mkdir -p $(@D)
	$(BIN)/convoy default-tensors $@

# -- using it -----------------------------------------------------------------------------------------------------

# Installs what is missing for a purpose, from the one list in tests/deps.sh. DEPS=no skips it.
.PHONY: deps deps-build deps-test deps-bench
deps: deps-build deps-test deps-bench ## install every package that building, testing and benchmarking need
deps-build deps-test deps-bench: deps-%:
	@if [ "$(DEPS)" != no ]; then tests/deps.sh $*; fi

# A make of its own, so that nothing is compiled before the packages are there.
.PHONY: run
run: deps-build ## replay a serving trace through real processes, carry tensors; SWAP=1 swaps the plugin meanwhile; TRACE=file TENSORS=file RUN_ARGS="--dp 8 --tp 1"
	@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)) DEPS=no all $(if $(SWAP),$(SECOND_BUILD))
	$(BIN)/convoy run --out $(BIN)/run $(if $(SWAP),--swap $(SECOND_BUILD)@1000:every=500:back=4000) $(if $(TRACE),--trace '$(TRACE)') $(if $(TENSORS),--tensors '$(TENSORS)') $(RUN_ARGS)

# -- tests ---------------------------------------------------------------------------------------------------------

# Unit tests link the objects they need (internal functions are hidden in the library); all others load the library.
# (q, not r: two layers may have files of one name.)
$(OBJ)/objects.a: $(LIB_OBJECTS) $(LOAD_OBJECTS) $(TEST_LIB_OBJECTS) $(UNIT_LIB_OBJECTS) $(filter-out %/main.o,$(CLI_OBJECTS))
	rm -f $@
	ar qcs $@ $^

$(TEST_BIN)/unit/test_%: $(OBJ)/tests/unit/test_%.o $(OBJ)/objects.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -lm -o $@

# The pretended engine comes first, so that the real one is not taken from the archive.
FAKE_ENGINE_OBJECTS := $(call objects,$(addprefix tests/lib/,fake_engine poll_grid poll_ranks poll_reference))
$(FAKE_ENGINE_TESTS:%=$(TEST_BIN)/unit/test_%): $(TEST_BIN)/unit/test_%: $(OBJ)/tests/unit/test_%.o \
    $(FAKE_ENGINE_OBJECTS) $(OBJ)/objects.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -lm -o $@

# The same for pretended links.
FAKE_LINK_OBJECTS := $(call objects,$(addprefix tests/lib/,fake_hosts fake_link))
$(FAKE_LINK_TESTS:%=$(TEST_BIN)/unit/test_%): $(TEST_BIN)/unit/test_%: $(OBJ)/tests/unit/test_%.o \
    $(FAKE_LINK_OBJECTS) $(OBJ)/objects.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -lm -o $@

FAKE_WIRE_OBJECTS := $(OBJ)/tests/lib/fake_wire.o
$(FAKE_WIRE_TESTS:%=$(TEST_BIN)/unit/test_%): $(TEST_BIN)/unit/test_%: $(OBJ)/tests/unit/test_%.o \
    $(FAKE_WIRE_OBJECTS) $(OBJ)/objects.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -lm -o $@

define HOST_TEST_RULE
$(TEST_BIN)/$(1)/test_%: $(OBJ)/tests/$(1)/test_%.o $(TEST_LIB_OBJECTS) $(BIN)/libconvoy_loader.a $(BIN)/libconvoy.so.1
	@mkdir -p $$(@D)
	$$(CC) $$(CFLAGS) $$(filter %.o %.a,$$^) $$(STATIC_LIBS) -lcmocka $$(SYSTEM_LIBS) -lm -o $$@
endef
$(foreach kind,conformance integration fault abi,$(eval $(call HOST_TEST_RULE,$(kind))))

$(CONFORMANCE_TESTS:%=$(TEST_BIN)/conformance/test_%): $(call objects,$(addprefix tests/conformance/,$(CONFORMANCE_SOURCES)))

$(FAULT_TESTS:%=$(TEST_BIN)/fault/test_%): $(call objects,$(addprefix tests/fault/,$(FAULT_SOURCES)))

# Brings a malloc family of its own, so it is in no other program.
$(TEST_BIN)/integration/test_counts $(TEST_BIN)/integration/test_transfer_counts: $(OBJ)/tests/lib/count.o
MOVE_TESTS := move_deaths move_groups
$(MOVE_TESTS:%=$(TEST_BIN)/integration/test_%): $(OBJ)/tests/lib/moving.o | $(SECOND_BUILD)
INTEGRATION_TESTS += $(MOVE_TESTS)
$(TEST_BIN)/integration/test_swap_load: $(call objects,$(addprefix tests/lib/,moving)) | $(SECOND_BUILD)
INTEGRATION_TESTS += swap_load
# Hosts that swap between real builds (tests/lib/swap_host.h).
SWAP_HOST_TESTS := abi/test_swap_coexist abi/test_swap_fork fault/test_swap_kills integration/test_swap_hangs integration/test_swap_mixed integration/test_swap_odd integration/test_swap_states
$(SWAP_HOST_TESTS:%=$(TEST_BIN)/%): $(OBJ)/tests/abi/hygiene.o $(OBJ)/tests/lib/moving.o $(OBJ)/tests/lib/swap_host.o | $(SECOND_BUILD)
ABI_TESTS += swap_coexist swap_fork
FAULT_TESTS += swap_kills
INTEGRATION_TESTS += swap_hangs swap_mixed swap_odd swap_states
$(TEST_BIN)/abi/test_hygiene: $(call objects,$(addprefix tests/abi/,calls hygiene pair))
INTEGRATION_TESTS += lifecycle size_one transfer transfer_admission transfer_admission_ends transfer_admission_far transfer_admission_threads transfer_calls transfer_resize transfer_resize_peers transfer_exhaustion transfer_large transfer_move transfer_move_damage transfer_move_device transfer_move_kinds transfer_move_peers transfer_move_states transfer_counts transfer_device transfer_device_far transfer_device_resize transfer_device_table transfer_peers transfer_far transfer_far_early transfer_far_ends transfer_far_raw transfer_far_rma transfer_raw transfer_rules transfer_soak transfer_stats transfer_waits transfer_known transfer_edges
INTEGRATION_TESTS += $(patsubst %,reports_transfer_%,device payloads peers requests slots threads)
FAULT_TESTS += open_allocation transfer_allocation transfer_move_allocation transfer_counters transfer_points transfer_relay transfer_relay_raw
$(TEST_BIN)/fault/test_transfer_points: $(OBJ)/tests/fault/courier.o
$(TEST_BIN)/fault/test_transfer_allocation $(TEST_BIN)/fault/test_transfer_move_allocation $(TEST_BIN)/fault/test_open_allocation $(TEST_BIN)/integration/test_size_one $(TEST_BIN)/integration/test_transfer_soak: $(OBJ)/tests/abi/hygiene.o

# Golden frames come from the inside of the library.
GOLDEN_OBJECTS := $(call objects,$(addprefix tests/abi/golden_,control list local net payload round segment state xfer))
$(TEST_BIN)/abi/golden $(TEST_BIN)/abi/test_golden: $(TEST_BIN)/abi/%: $(OBJ)/tests/abi/%.o $(GOLDEN_OBJECTS) $(OBJ)/objects.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -lm -o $@
$(TEST_BIN)/abi/test_golden: | $(TEST_BIN)/abi/golden

# Tests that walk over all calls of the tables.
HANDLE_TESTS := arguments debug_tags fork observability reopen_walk state_table structs threads
HANDLE_TESTS += move_damaged move_states
$(TEST_BIN)/abi/test_move_damaged $(TEST_BIN)/abi/test_move_states: $(OBJ)/tests/lib/moving.o | $(SECOND_BUILD)
$(TEST_BIN)/abi/test_move_damaged: $(OBJ)/tests/abi/hygiene.o
ABI_TESTS += $(HANDLE_TESTS)
$(HANDLE_TESTS:%=$(TEST_BIN)/abi/test_%): $(OBJ)/tests/abi/calls.o $(OBJ)/tests/abi/pair.o
$(TEST_BIN)/abi/test_arguments $(TEST_BIN)/abi/test_structs: $(OBJ)/tests/abi/guarded.o $(OBJ)/tests/abi/struct_cases.o $(OBJ)/tests/abi/struct_engines.o

# Tiny plugins that the loader's tests open; one source, one file per kind.
TINY_PLUGINS := bad_json extra_slots good good_b init_fails needs_gone no_entry no_note no_table refuses short_table too_new
TINY_FILES := $(patsubst %,$(TEST_BIN)/abi/plugins/%.so,$(TINY_PLUGINS))
MOVER_FILES := $(patsubst %,$(TEST_BIN)/abi/plugins/mover_%.so,a b c lean still)

$(TEST_BIN)/abi/plugins/%.so: tests/abi/tiny_plugin.c $(OBJ)/stamp
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CONVOY_CFLAGS) $(CFLAGS) -DTINY_$* -shared -Wl,--build-id=sha1 -Wl,-z,nodelete \
	    $< -o $@.new
	if [ $* != no_note ]; then $(OBJ)/stamp $@.new; fi
	mv $@.new $@

$(TEST_BIN)/abi/plugins/needs_gone.so: tests/abi/tiny_plugin.c $(OBJ)/stamp
	@mkdir -p $(@D)
	echo 'int tiny_gone(void); int tiny_gone(void) { return 0; }' | $(CC) -x c -shared -fPIC - -Wl,-soname,libtiny_gone.so \
	    -o $(@D)/libtiny_gone.so
	$(CC) $(CPPFLAGS) $(CONVOY_CFLAGS) $(CFLAGS) -DTINY_needs_gone -shared -Wl,--build-id=sha1 $< -L$(@D) -ltiny_gone -o $@.new
	rm $(@D)/libtiny_gone.so
	$(OBJ)/stamp $@.new
	mv $@.new $@

$(TEST_BIN)/abi/plugins/mover_%.so: tests/abi/tiny_mover.c tests/abi/tiny_mover.h $(OBJ)/stamp
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CONVOY_CFLAGS) $(CFLAGS) -DMOVER_$* -shared -Wl,--build-id=sha1 -Wl,-z,nodelete $< -o $@.new
	$(OBJ)/stamp $@.new
	mv $@.new $@

$(addprefix $(TEST_BIN)/unit/test_,compat elf_file host inspect loader mapped stamp swap): | $(TINY_FILES)
$(addprefix $(TEST_BIN)/unit/test_,swap swap_calls swap_files swap_threads): | $(MOVER_FILES)

$(TEST_BIN)/abi/test_load: | $(SECOND_BUILD)

# Tests of the command that open the plugin as a user's host does, and the checker where the command looks for it.
$(addprefix $(TEST_BIN)/unit/test_,compat doctor perf plain_host replay run): | $(BIN)/libconvoy.so.1
$(addprefix $(TEST_BIN)/unit/test_,doctor plain_host run): | $(TINY_FILES)
$(addprefix $(TEST_BIN)/unit/test_,replay run run_check): | $(TEST_BIN)/unit/convoy-reference

$(TEST_BIN)/unit/convoy-reference: $(BIN)/convoy-reference
	@mkdir -p $(@D)
	ln -f $< $@

UNIT_BINARIES := $(patsubst %,$(TEST_BIN)/unit/test_%,$(UNIT_TESTS))
binaries = $(patsubst %,$(TEST_BIN)/$(1)/test_%,$(2))
CONFORMANCE_BINARIES := $(call binaries,conformance,$(CONFORMANCE_TESTS))
INTEGRATION_BINARIES := $(call binaries,integration,$(INTEGRATION_TESTS))
FAULT_BINARIES := $(call binaries,fault,$(FAULT_TESTS))
ABI_BINARIES := $(call binaries,abi,$(ABI_TESTS))
REPLAY_BINARIES := $(patsubst %,$(TEST_BIN)/fuzz/replay_%,$(FUZZERS))
HOST_BINARIES := $(CONFORMANCE_BINARIES) $(INTEGRATION_BINARIES) $(FAULT_BINARIES) $(ABI_BINARIES)

# Everything (tests/suite.sh): TARGET or VARIANT/TARGET, with =SECONDS for its limit. What + marks only computes, and runs
# beside the tests, which mostly wait: the builds of other variants, longest wanted last, and the gates.
TEST_STEPS := all test-unit=600 +debug/build-fault=3600 +mutation/build-mutations=3600 +asan/build-sanitized=3600 \
              +tsan/build-sanitized=3600 +clang/all=3600 +aarch64/aarch64-objects=3600 \
              test-integration test-python=900 test-cli test-abi test-releases=1800 release-page headers test-conformance debug/test-fault=600 \
              mutation/mutations-run=900 asan/test-fuzz-replay asan/test-sanitized=1800 tsan/test-sanitized=900
# Programs at a time of the steps that wait for deadlines, deaths and peers more than they compute: one more than CI's cores.
WAITING_JOBS := 3

# Looks at the log of all others, so it comes last.
LAST_STEP := reports
GATE_STEPS := +abi-mutate=3600 +lint=3600

.PHONY: test check
test: deps-test ## everything at small scale, about 20 minutes on two cores; ends with "N passed, N failed, N skipped"
	@WERROR=$(WERROR) tests/suite.sh $(TEST_STEPS) $(LAST_STEP)

check: deps-test ## all that a merge needs, about 25 minutes on two cores: warnings are errors, everything of `make test`, lint, the gates broken
	@WERROR=1 tests/suite.sh $(TEST_STEPS) $(GATE_STEPS) $(LAST_STEP)

.PHONY: test-cli
test-cli: all $(TEST_BIN)/abi/golden $(SECOND_BUILD) ## the command and the replay, as a user runs them
	TEST_JOBS=2 tests/run.sh $(patsubst %,tests/integration/%.sh,$(INTEGRATION_SCRIPTS))

# Runs no test: looks in the log of those that ran.
.PHONY: reports
reports: ## each public report in tests/threads.tsv is covered by a test that passed (after the tests)
	tests/threads.sh build/tests.log

.PHONY: test-integration
test-integration: $(INTEGRATION_BINARIES) ## what takes real processes: counts, reports
	TEST_JOBS=$(WAITING_JOBS) tests/run.sh $^

.PHONY: test-abi
test-abi: $(ABI_BINARIES) ## loading, foreign sizes, the state table
	TEST_JOBS=$(WAITING_JOBS) tests/run.sh $^

# Python's side: the package against this build. Each is a program of its own; torch's tests skip where torch is not there.
PYTHON ?= /usr/bin/python3
PYTHON_LONG := $(patsubst %,tests/python/test_%.py,sglang_run typing) # first, so that no core waits for them at the end
PYTHON_TESTS := $(PYTHON_LONG) $(sort $(filter-out $(PYTHON_LONG),$(wildcard tests/python/test_*.py tests/python/test_*.sh)))

.PHONY: test-python
test-python: $(BIN)/libconvoy.so.1 $(TINY_FILES) $(SECOND_BUILD) ## the Python package: loading, rounds, transfers, torch, the SGLang hooks beside real gloo
	CONVOY_LIBRARY=$(abspath $(BIN))/libconvoy.so.1 PYTHONPYCACHEPREFIX=$(CURDIR)/build/python TEST_JOBS=2 tests/run.sh $(PYTHON_TESTS)

.PHONY: test-conformance
test-conformance: $(CONFORMANCE_BINARIES) ## one suite over threads, shared memory, UCX and network namespaces
	TEST_JOBS=2 tests/run.sh $^

.PHONY: headers
headers: ## each public header alone, as C11 and C++17, with gcc and clang
	abi/headers.sh

# The objects of all that is shipped, for a machine that is not here.
.PHONY: aarch64-objects
aarch64-objects: $(LIB_OBJECTS) $(OBJ)/plugin/stdin.o $(LOAD_OBJECTS) $(CLI_OBJECTS)

# Under AddressSanitizer all unit tests, one host by shared memory and by UCX, the ABI, and the integration tests but those
# that measure; under ThreadSanitizer what threads share.
TSAN_UNIT_TESTS := bootstrap bootstrap_callback bootstrap_leave call_log device device_host device_order group_move handle link link_peers remote_move_ucx runtime stats swap_threads tables_pair bulk_threads
SANITIZED := $(UNIT_BINARIES) $(filter %_shared_memory %_ucx,$(CONFORMANCE_BINARIES)) $(ABI_BINARIES) \
             $(filter-out %/test_counts %/test_transfer_counts %/test_reports_cost,$(INTEGRATION_BINARIES))
ifeq ($(VARIANT),tsan)
SANITIZED := $(call binaries,unit,$(TSAN_UNIT_TESTS)) $(filter %_threads,$(CONFORMANCE_BINARIES)) \
             $(call binaries,abi,threads) \
             $(call binaries,integration,transfer transfer_admission transfer_admission_ends transfer_admission_threads transfer_calls transfer_edges transfer_device transfer_move_device $(addprefix reports_transfer_,device slots threads))
endif

.PHONY: test-sanitized asan tsan
test-sanitized: $(SANITIZED)
	TEST_JOBS=2 tests/run.sh $^

# The programs of a step alone, so that they can be built while others run.
.PHONY: build-sanitized build-fault
build-sanitized: $(SANITIZED) $(if $(filter asan,$(VARIANT)),$(REPLAY_BINARIES))
build-fault: $(FAULT_BINARIES)

asan: ## all but the counts and injected faults under AddressSanitizer and UndefinedBehaviorSanitizer
tsan: ## what threads share, under ThreadSanitizer
asan tsan:
	$(MAKE) VARIANT=$@ DEPS=no test-sanitized

T ?=

.PHONY: test-one
test-one: $(filter %/test_$(T),$(UNIT_BINARIES) $(HOST_BINARIES)) ## one test program, with its output: T=name
	@[ -n "$^" ] || { echo "T=$(T) is no test program"; exit 2; }
	$^

# Times the small scale of `make test`; 50 is the 100,000 random steps of eight ranks, and a million counted rounds.
SCALE ?= 50

.PHONY: soak soak-counts soak-others
soak: deps-test ## every test that has a scale, at the full one (SCALE=50)
	@CONVOY_SCALE=$(SCALE) TEST_LIMIT_S=7200 tests/suite.sh all soak-counts=7200 soak-others=21600 debug/test-fault=21600
soak-counts: $(call binaries,integration,counts transfer_soak)
	CONVOY_SCALE=$$((CONVOY_SCALE * 10)) tests/run.sh $^
soak-others: $(CONFORMANCE_BINARIES) $(filter-out %/test_counts %/test_transfer_soak,$(INTEGRATION_BINARIES)) $(call binaries,abi,threads)
	tests/run.sh $^

.PHONY: coverage coverage-run
coverage: ## lines of src and plugin that the tests take, by folder and file (gcov)
	$(MAKE) VARIANT=coverage DEPS=no coverage-run

coverage-run: $(UNIT_BINARIES) $(HOST_BINARIES)
	find build/coverage -name '*.gcda' -delete
	-tests/run.sh -l build/coverage/tests.log $^
	tests/coverage.sh build/coverage/obj

# Small libraries that stand in for others.
$(TEST_BIN)/lib/%.so: tests/lib/%.c
	@mkdir -p $(@D)
	$(CC) $(CONVOY_CFLAGS) -fvisibility=default -shared $< -o $@

$(TEST_BIN)/abi/test_swap_coexist $(TEST_BIN)/unit/test_ucx $(TEST_BIN)/integration/test_reports_plugin: | $(patsubst %,$(TEST_BIN)/lib/%.so,$(TEST_SHIMS))

# The pretended CUDA driver, and one that lacks a function (tests/lib/sim_cuda.h).
SIM_CUDA_SOURCES := $(patsubst %,tests/lib/%.c,sim_cuda sim_cuda_memory sim_cuda_stream)
SIM_CUDA_FILES := $(TEST_BIN)/lib/libcuda.so.1 $(TEST_BIN)/lib/libcuda_short.so.1
$(SIM_CUDA_FILES): $(SIM_CUDA_SOURCES) $(wildcard tests/lib/sim_cuda*.h) tests/lib/cuda_host.h src/device/cuda_library.h
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(CONVOY_CFLAGS) $(CFLAGS) -fvisibility=default $(if $(findstring short,$@),-DSIM_CUDA_SHORT) -shared \
	    $(SIM_CUDA_SOURCES) -lpthread -o $@.new
	mv $@.new $@

$(DEVICE_TESTS:%=$(TEST_BIN)/unit/test_%) $(TEST_BIN)/unit/test_perf_transfer $(patsubst %,$(TEST_BIN)/integration/test_%,transfer_device transfer_device_far transfer_device_resize transfer_device_table transfer_move_device reports_transfer_device): | $(SIM_CUDA_FILES)

.PHONY: test-gpu
test-gpu: ## the device layer, and transfers through it, on a real GPU; skips with the reason where there is none
	tests/run.sh tests/gpu/run.sh

.PHONY: test-unit
test-unit: $(UNIT_BINARIES) ## unit tests only, about a minute once they are built
	TEST_JOBS=$(WAITING_JOBS) tests/run.sh $(UNIT_BINARIES)

# The fault hooks are in every variant but release, so: make VARIANT=debug test-fault.
.PHONY: test-fault
test-fault: $(FAULT_BINARIES) ## members that are killed, stopped and cut off; needs VARIANT=debug; CONVOY_SCALE=n for longer ones
	TEST_JOBS=$(WAITING_JOBS) tests/run.sh $(FAULT_BINARIES)

# What the table of mutations runs, built once with all of them compiled in and none switched on.
MUTATION_TESTS := $(sort $(shell awk '$$2 ~ "/" {print $$2}' tests/fault/mutations.txt))

.PHONY: test-mutations mutations-run build-mutations
test-mutations: ## break the protocols in over 70 compiled-in ways; each must make a test fail
	$(MAKE) --no-print-directory VARIANT=mutation DEPS=no mutations-run

build-mutations: $(addprefix $(TEST_BIN)/,$(MUTATION_TESTS))
mutations-run: build-mutations
	tests/mutations.sh $(BIN) $(M)

# -- benchmark -----------------------------------------------------------------------------------------------------

BENCH_BIN := $(TEST_BIN)/bench
BENCH_OBJECTS := $(call objects,$(addprefix tests/bench/,$(BENCH_SOURCES)))
BENCH_PROGRAMS := $(addprefix $(BENCH_BIN)/,am_floor convoy_bench convoy_costs floor mpi_peer transfer_bench transfer_floor transfer_micro)

# Measures the inside of the library between two namespaces, so it links the objects: make build/tests/bench/bulk_bw.
$(BENCH_BIN)/bulk_bw: $(OBJ)/tests/bench/bulk_bw.o $(OBJ)/objects.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -lm -o $@

# The floor may use what this machine has; the peer of Open MPI needs its compiler wrapper.
$(OBJ)/tests/bench/floor.o: CFLAGS := -O3 -march=native -g
$(OBJ)/tests/bench/mpi_peer.o: tests/bench/mpi_peer.c
	@mkdir -p $(@D)
	mpicc $(CPPFLAGS) $(CONVOY_CFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(BENCH_BIN)/floor: $(OBJ)/tests/bench/floor.o $(BENCH_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ -o $@

$(OBJ)/tests/bench/transfer_floor.o: CFLAGS := -O3 -march=native -g
$(BENCH_BIN)/transfer_floor: $(OBJ)/tests/bench/transfer_floor.o $(OBJ)/tests/bench/handover.o $(BENCH_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ -o $@

$(BENCH_BIN)/transfer_micro: $(OBJ)/tests/bench/transfer_micro.o $(OBJ)/tests/bench/handover.o $(BENCH_OBJECTS) \
                             $(CORE_OBJECTS) $(POOL_OBJECTS) $(WIRE_OBJECTS) $(OBJ)/src/net/shared_file.o
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ $(STATIC_LIBS) $(SYSTEM_LIBS) -o $@

$(BENCH_BIN)/transfer_bench: $(call objects,$(addprefix tests/bench/transfer_,bench bulk kinds side)) \
                             $(OBJ)/tests/bench/handover.o $(BENCH_OBJECTS) $(TEST_LIB_OBJECTS) \
                             $(BIN)/libconvoy_loader.a $(BIN)/libconvoy.so.1
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(filter %.o %.a,$^) $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -o $@

$(BENCH_BIN)/mpi_peer: $(OBJ)/tests/bench/mpi_peer.o $(BENCH_OBJECTS)
	@mkdir -p $(@D)
	mpicc $(CFLAGS) $^ -o $@

$(BENCH_BIN)/am_floor: $(OBJ)/tests/bench/am_floor.o $(BENCH_OBJECTS)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ -lucp -lucs -o $@

$(BENCH_BIN)/convoy_%: $(OBJ)/tests/bench/convoy_%.o $(BENCH_OBJECTS) $(TEST_LIB_OBJECTS) \
                      $(BIN)/libconvoy_loader.a $(BIN)/libconvoy.so.1
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $(filter %.o %.a,$^) $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -o $@

.PHONY: bench-programs
bench-programs: $(BENCH_PROGRAMS)

.PHONY: bench
bench: ## compare with what hosts use today and with the floor; writes build/bench/*.json (BENCH_QUICK=1 to try)
	[ "$(DEPS)" = no ] || tests/deps.sh bench
	$(MAKE) --no-print-directory bench-programs
	/usr/bin/python3 -B tests/bench/bench.py
	/usr/bin/python3 -B tests/bench/transfer.py
	/usr/bin/python3 -B tests/bench/python_bench.py

.PHONY: bench-swap
bench-swap: $(TEST_BIN)/integration/test_swap_load ## how long a host waits for a swap: 8 ranks, 100,000 steps and 50 swaps each, without and with transfers
	CONVOY_SCALE=50 $<

.PHONY: bench-python
bench-python: all ## the last part of bench alone: the Python package beside torch gloo
	[ "$(DEPS)" = no ] || tests/deps.sh bench
	/usr/bin/python3 -B tests/bench/python_bench.py

.PHONY: bench-transfer
bench-transfer: ## the second half of bench alone: staged transfer, pyzmq, ucx_perftest and the floor
	[ "$(DEPS)" = no ] || tests/deps.sh bench
	$(MAKE) --no-print-directory bench-programs
	/usr/bin/python3 -B tests/bench/transfer.py

.PHONY: profile
profile: ## where the instructions of a call go, by source file (CASES="poll:8 poll:64 poll:256 row:8 lists:64")
	[ "$(DEPS)" = no ] || tests/deps.sh bench
	$(MAKE) --no-print-directory bench-programs
	tests/bench/profile.sh $(if $(CASES),$(CASES),poll:8 poll:64 poll:256 row:8 lists:64)

# -- ABI gates (abi/README.md) -------------------------------------------------------------------------------------

# -- fuzzing: each NAME in FUZZERS is tests/fuzz/fuzz_NAME.c with its corpus in tests/data/fuzz/NAME -----------------

SECONDS ?= 60

$(TEST_BIN)/fuzz/replay_%: $(OBJ)/tests/fuzz/fuzz_%.o $(OBJ)/tests/fuzz/replay.o $(OBJ)/objects.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) $^ $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -lm -o $@

$(TEST_BIN)/fuzz/fuzz_%: $(OBJ)/tests/fuzz/fuzz_%.o $(OBJ)/objects.a
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -fsanitize=fuzzer,address $^ $(STATIC_LIBS) -lcmocka $(SYSTEM_LIBS) -lm -o $@

.PHONY: test-fuzz-replay
test-fuzz-replay: $(REPLAY_BINARIES) ## run every fuzzer over its kept corpus
	tests/run.sh $(REPLAY_BINARIES)

.PHONY: fuzz fuzz-run
fuzz: ## look for new inputs, SECONDS=60 for each fuzzer (clang)
	$(MAKE) VARIANT=fuzz DEPS=no SECONDS=$(SECONDS) fuzz-run

# What is found goes to build/fuzz/corpus; an input worth keeping is copied to tests/data/fuzz by hand.
fuzz-run: $(patsubst %,$(TEST_BIN)/fuzz/fuzz_%,$(FUZZERS))
	for name in $(FUZZERS); do mkdir -p build/fuzz/corpus/$$name build/fuzz/found; \
	    $(TEST_BIN)/fuzz/fuzz_$$name -max_total_time=$(SECONDS) -max_len=12288 -print_final_stats=1 \
	    -artifact_prefix=build/fuzz/found/$$name- build/fuzz/corpus/$$name tests/data/fuzz/$$name || exit 1; done

.PHONY: abi-check
abi-check: $(BIN)/libconvoy.so.1 $(BIN)/convoy $(TEST_BIN)/abi/golden ## compare the ABI with its baselines: symbols, layout, registries, headers, frames
	abi/check.sh $(BIN) $(TEST_BIN)/abi/golden

.PHONY: abi-freeze
abi-freeze: abi-check ## freeze the ABI of a release for ever: V=1.0; writes abi/v1.0, to be committed
	abi/freeze.sh '$(V)' $(BIN) $(TEST_BIN)/abi/golden

# Builds the fabricated next release and each frozen one under build/matrix, once for the sources they come from.
.PHONY: release-matrix test-releases
release-matrix: $(BIN)/libconvoy.so.1 $(BIN)/libconvoy_loader.a $(BIN)/convoy ## each release, this tree and a fabricated next one, as host, plugin, peer and swap of each other
	tests/abi/matrix.sh

test-releases: $(BIN)/libconvoy.so.1 $(BIN)/libconvoy_loader.a $(BIN)/convoy
	TEST_LIMIT_S=900 tests/run.sh tests/abi/matrix.sh tests/abi/matrix_self.sh

# The page alone, with the matrix that was run last: all gates, and what it says of each release.
.PHONY: release-check release-page
release-page: $(BIN)/libconvoy.so.1 $(BIN)/convoy $(TEST_BIN)/abi/golden
	abi/release.sh $(BIN) $(TEST_BIN)/abi/golden

release-check: $(BIN)/libconvoy.so.1 $(BIN)/libconvoy_loader.a $(BIN)/convoy $(TEST_BIN)/abi/golden ## one page: may this tree be called a release, and what do older hosts and peers see
	-tests/abi/matrix.sh >build/release-runs.log
	abi/release.sh $(BIN) $(TEST_BIN)/abi/golden

.PHONY: abi-draft
abi-draft: ## make the ABI as it is now the baseline, deliberately
	abi/layout.sh draft
	abi/registry.sh draft
	abi/python.sh draft

.PHONY: abi-mutate
abi-mutate: $(BIN)/libconvoy.so.1 $(BIN)/convoy $(TEST_BIN)/abi/golden ## break the ABI in over 70 ways; each must be caught by a gate
	abi/mutate.sh $(BIN) $(TEST_BIN)/abi/golden

.PHONY: lint
lint: ## licence lines, function and file length, include direction, clang-tidy
	tests/lint/sources.sh
	tests/lint/tidy.sh

# -- installing ----------------------------------------------------------------------------------------------------

# The command looks for the plugin, the checker, the trace and the tensors beside its own file, so they share a folder.
INSTALL_TO = $(DESTDIR)$(PREFIX)

.PHONY: install
install: all ## copy to DESTDIR/PREFIX (default /usr/local): library, headers, loader, command, convoy.pc
	install -d '$(INSTALL_TO)'/{bin,include/convoy,lib/pkgconfig,lib/convoy/{abi/draft,tensors,trace}}
	install -m 755 $(BIN)/libconvoy.so.1 '$(INSTALL_TO)/lib/libconvoy.so.$(RELEASE)'
	ln -sf libconvoy.so.$(RELEASE) '$(INSTALL_TO)/lib/libconvoy.so.1'
	ln -sf libconvoy.so.1 '$(INSTALL_TO)/lib/libconvoy.so'
	install -m 644 $(BIN)/libconvoy_loader.a '$(INSTALL_TO)/lib/'
	install -m 644 include/convoy/*.h '$(INSTALL_TO)/include/convoy/'
	install -m 755 $(BIN)/convoy $(BIN)/convoy-reference '$(INSTALL_TO)/lib/convoy/'
	install -m 644 $(BIN)/trace/default.jsonl '$(INSTALL_TO)/lib/convoy/trace/'
	install -m 644 $(BIN)/tensors/default.safetensors '$(INSTALL_TO)/lib/convoy/tensors/'
	for part in $(notdir $(wildcard abi/v*)); do install -d "$(INSTALL_TO)/lib/convoy/abi/$$part" && \
	    install -m 644 abi/$$part/{manifest.json,layout.txt} "$(INSTALL_TO)/lib/convoy/abi/$$part/" || exit 1; done
	install -m 644 abi/draft/layout.txt '$(INSTALL_TO)/lib/convoy/abi/draft/'
	ln -sf ../libconvoy.so.1 '$(INSTALL_TO)/lib/convoy/libconvoy.so.1'
	ln -sf ../lib/convoy/convoy '$(INSTALL_TO)/bin/convoy'
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@RELEASE@|$(RELEASE)|' plugin/convoy.pc.in >'$(INSTALL_TO)/lib/pkgconfig/convoy.pc'

# Into the folder of this PREFIX where Python looks for packages, with the library beside the package.
PYTHON_TO = $(DESTDIR)$(shell $(PYTHON) -c 'import site, sys; prefix = "$(PREFIX)"; own = "%s/lib/python%d.%d/site-packages" % ((prefix,) + sys.version_info[:2]); print(next((d for d in site.getsitepackages() if d.startswith(prefix + "/lib/")), own))')

.PHONY: install-python
install-python: all ## copy the Python package and the library to DESTDIR/PREFIX, where PYTHON (/usr/bin/python3) looks
	plugin/python/install.sh '$(PYTHON)' '$(PYTHON_TO)' $(BIN)/libconvoy.so.1

.PHONY: uninstall-python
uninstall-python: ## remove what install-python copied
	if ls -d '$(PYTHON_TO)'/convoy-*.dist-info >/dev/null 2>&1; then \
	    rm -rf '$(PYTHON_TO)/convoy' '$(PYTHON_TO)'/convoy-*.dist-info; fi

.PHONY: uninstall
uninstall: ## remove what install copied
	rm -f '$(INSTALL_TO)'/lib/libconvoy.so{,.1,.$(RELEASE)} '$(INSTALL_TO)/lib/libconvoy_loader.a' \
	    '$(INSTALL_TO)/lib/pkgconfig/convoy.pc' '$(INSTALL_TO)/bin/convoy'
	rm -rf '$(INSTALL_TO)/lib/convoy' '$(INSTALL_TO)/include/convoy'

.PHONY: clean
clean: ## remove everything that was built
	rm -rf build

.PHONY: help
help: ## this list
	@grep -hE '^[a-z][a-z0-9-]*:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## (.*)/\1\t\2/' | sort | \
	    awk -F'\t' '{printf "  %-16s %s\n", $$1, $$2}'
	@echo "  variables: VARIANT=release|debug|asan|tsan|mutation|fuzz|coverage|clang|aarch64 CC=gcc|clang WERROR=1 DEPS=no TRACE=file PREFIX= DESTDIR="

-include $(shell find build/$(VARIANT)/obj -name '*.d' 2>/dev/null)
