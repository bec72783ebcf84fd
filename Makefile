# The commands that are worth a name. What they check is in .ci/run.

.PHONY: all test storm storm-kernel model test-std test-softroce test-softiwarp test-programs test-browser test-faulty test-long test-fence test-timing test-trust test-shortage bench-softroce race fuzz fuzz-shared soak bench lint cross examples ci

all: lint test

test:
	go test ./...

# The protocol of lanes, both ends of it, through a transport that does its worst, for a night:
# other seeds each time. What fails prints its seed, how to replay it, and what led to it.
model: export MODEL_DEEP = 1
model:
	go test -count=1 -timeout 0 -v -run '^Test(Model|Slots|Hostile|PollRole)' ./ring/...

# The tests of connections that look for what is rare, at full length: go test runs a slice.
# Wake-ups that are lost, ends that are abrupt, processes that are killed.
test-long:
	RDMANET_TEST_LONG=1 go test -count=1 -timeout 30m -v -run 'LostWakeup|Stress|KillRounds|FewDescriptors' ./rdmanet

# Tests of the standard library over rdmanet; internal/stdtest/tests.txt says which.
test-std:
	go run ./internal/stdtest

# Real verbs, in virtual machines with the kernel's soft-RoCE. It says what to install.
test-softroce:
	softroce/test
	softroce/faults

# The same kernel's soft-iWARP, which is built from Debian's source first.
test-softiwarp:
	softroce/test -d siw

# gRPC, HTTP/2, TLS, WebSockets, SSH and the like over rdmanet, and PostgreSQL, Redis and
# nginx with their load tools behind a pair of cmd/rdmanet-proxy. A test whose server is
# missing is skipped, and says what to install:
# apt-get install postgresql redis-server redis-tools nginx-light wrk
test-programs:
	cd internal/programs && go test -count=1 -v ./...

# The tests of rdmanet over a device that is late, reorders and wakes for nothing, and those
# of devices that fail. FAULT_SEED=n repeats a round; FAULT_ROUNDS=n goes on with the next.
FAULT_SEED ?= 1
FAULT_ROUNDS ?= 3
test-faulty:
	go test -c -o faulty.test ./rdmanet
	for seed in $$(seq $(FAULT_SEED) $$(($(FAULT_SEED) + $(FAULT_ROUNDS) - 1))); do \
		echo "seed $$seed"; \
		RDMANET_FAULT_SEED=$$seed go test -count=1 ./internal/verbs/faulty || exit 1; \
		(cd rdmanet && RDMANET_FAULT_SEED=$$seed RDMANET_DEVICE=faulty0 ../faulty.test -test.timeout 20m) || exit 1; \
	done

# How soon things happen. Nothing else should run on the machine; what fails is measured
# again, up to TRIES times. make test-timing PACKAGES=./rdmanet
TRIES ?= 3
test-timing:
	TRIES=$(TRIES) .ci/timing $(PACKAGES)

# Whether go test fails where nothing is wrong: each package's tests RUNS times beside four
# processes that only run, and RUNS times with one processor. It takes hours; what fails is
# named, and its log kept in LOGS. make test-trust PACKAGES=./rdmanet RUNS=3
RUNS ?= 10
test-trust:
	RUNS=$(RUNS) .ci/trust $(PACKAGES)

# Thousands of clients that dial at once from eight processes beside four that are busy,
# with TCP beside them: none may fail, and no message be lost. DIALS=1000 is for devices
# that are slower; RDMANET_DEVICE and RDMANET_TEST_ADDR say which.
STORMS ?= 3
DIALS ?= 4000
storm:
	RDMANET_STORM=$(STORMS) RDMANET_STORM_DIALS=$(DIALS) \
		go test -count=1 -timeout 2h -v -run '^TestStorm' ./rdmanet

# The same on the kernel's soft-RoCE, or with KERNEL=siw its soft-iWARP, on one host and from one
# to another, where one side also stands still: make storm-kernel KERNEL=siw DIALS=200
KERNEL ?= rxe
storm-kernel:
	RDMANET_STORM=$(STORMS) RDMANET_STORM_DIALS=$(if $(filter 4000,$(DIALS)),1000,$(DIALS)) \
		softroce/test -d $(KERNEL) storms hoststorms

# A wake-up that a missing fence loses, looked for as long as FENCE_TIME says. It wants two
# processors to itself.
FENCE_TIME ?= 10m
test-fence:
	RDMANET_FENCE_TIME=$(FENCE_TIME) go test -count=1 -timeout 0 -v -run '^TestUnfencedPublication$$' ./internal/verbs/soft

race:
	.ci/run race race-repeated

# A longer look: make fuzz FUZZ_TIME=10000000x
fuzz: export FUZZ_TIME ?= 200000x
fuzz: export STEP_LIMIT ?= 12h
fuzz:
	.ci/run fuzz

# A process that scribbles over all it shares with another, for longer than go test does.
# SEED=N ROUNDS=1 does again what a failure has named.
fuzz-shared: ROUNDS ?= 5000
fuzz-shared:
	RDMANET_FUZZ_ROUNDS=$(ROUNDS) $(if $(SEED),RDMANET_FUZZ_SEED=$(SEED)) \
		go test -count=1 -timeout 12h -v -run '^TestSharedMemoryFuzz$$' ./rdmanet

# Connections live and die for as long as DURATION says, and CYCLES of them are made and
# closed. On an RDMA NIC: see docs/OPERATIONS.md.
DURATION ?= 1h
CYCLES ?= 100000
soak:
	go test ./internal/soak -count=1 -timeout 0 -v -soak $(DURATION) -cycles $(CYCLES)

# Each round measures everything once, so that what is compared stands side by side.
# make bench BENCH=Echo measures a part, which leaves the documentation alone; benchstat
# reads what is in OUT.
COUNT ?= 5
BENCH ?= .
BENCH_TIME ?= 0.1s
documented := docs/bench/software.txt
OUT ?= $(if $(filter .,$(BENCH)),$(documented),bench.out)
# The page of another machine's output, if there is one beside it: its table is written anew.
page = $(filter %.md,$(wildcard $(OUT:.txt=.md)))
bench:
	go test -c -o bench.test .
	go test -c -o internal/bench/bench.test ./internal/bench
	go run -C internal/benchreport . -header >$(OUT)
	for i in $$(seq $(COUNT)); do \
		for binary in ./bench.test internal/bench/bench.test; do \
			$$binary -test.run '^$$' -test.bench '$(BENCH)' -test.benchtime $(BENCH_TIME) >>$(OUT) || exit 1; \
		done; \
		echo "round $$i of $(COUNT) measured"; \
	done
	go run -C internal/benchreport . $(if $(filter $(documented),$(OUT)),-docs $(CURDIR)/docs/BENCHMARKS.md -charts $(CURDIR)/docs/bench,$(if $(page),-docs $(abspath $(page)))) $(abspath $(OUT))

# This library beside perftest, rsockets, SMC-R and kernel TCP, in such a machine: one table of
# ratios. OUT=DIR keeps what the programs printed.
ROUNDS ?= 5
bench-softroce:
	softroce/bench -r $(ROUNDS) $(if $(OUT),-o $(OUT))

# A server that runs short of descriptors or memory, with clients that hold their
# connections for half a second, three times beside BUSY processes that only run.
BUSY ?= 4
test-shortage: export RDMANET_HOLD ?= 500ms
test-shortage: export RDMANET_BUSY = $(BUSY)
test-shortage:
	go test -count 3 -run '^TestShortage' -v ./rdmanet

# The listing of connections in Chromium. PICTURE=page.png keeps what it looks like.
test-browser:
	.ci/browser $(PICTURE)

lint:
	.ci/run format tidy vet staticcheck

cross:
	.ci/run cross

examples:
	go run ./examples/echo
	go run ./examples/http
	go run ./cmd/rdmanet-doctor

ci:
	.ci/run
