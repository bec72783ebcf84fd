# The commands that are worth a name. What they check is in .ci/run.

.PHONY: all test test-softroce bench-softroce race fuzz bench lint cross examples ci

all: lint test

test:
	go test ./...

# Real verbs, in virtual machines with the kernel's soft-RoCE. It says what to install.
test-softroce:
	softroce/test
	softroce/faults

race:
	.ci/run race race-repeated

# A longer look: make fuzz FUZZ_TIME=10000000x
fuzz: export FUZZ_TIME ?= 200000x
fuzz: export STEP_LIMIT ?= 12h
fuzz:
	.ci/run fuzz

# Each pass measures everything once, so that the passes are interleaved: compare
# them with benchstat -col /transport bench.out
COUNT ?= 6
BENCH ?= .
bench:
	go test -c -o bench.test .
	rm -f bench.out
	for i in $$(seq $(COUNT)); do \
		./bench.test -test.run '^$$' -test.bench '$(BENCH)' -test.benchtime 0.3s | tee -a bench.out || exit 1; \
	done

# This library beside perftest, rsockets and kernel TCP, in such a machine: one table of
# ratios. OUT=DIR keeps what the programs printed.
ROUNDS ?= 5
bench-softroce:
	softroce/bench -r $(ROUNDS) $(if $(OUT),-o $(OUT))

lint:
	.ci/run format tidy vet staticcheck

cross:
	.ci/run cross

examples:
	go run ./examples/echo
	go run ./examples/http
	go run ./examples/doctor

ci:
	.ci/run
