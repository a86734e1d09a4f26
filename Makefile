# The front door. Every target does its own set-up; `make help` says what there is.
PRESET ?= release
PREFIX ?= /usr/local
DESTDIR ?=
BUILD = build/$(PRESET)
# Guests, namespaces and TAPs need root; building does not.
AS_ROOT = $(shell [ "$$(id -u)" = 0 ] || echo sudo)

.DEFAULT_GOAL := help
.PHONY: help deps deps-demo deps-all deps-full build demo test test-full bench lint format install soak clean

help:
	@echo "sluice: a userspace packet fast path for virtual machines"
	@echo
	@echo "Start here"
	@echo "  make demo       build, boot a small Linux guest, show its traffic both ways, and behind an XDP program"
	@echo "  make build      the program at build/release/sluice; then: build/release/sluice run --help"
	@echo
	@echo "While you change it"
	@echo "  make build PRESET=asan   other builds: debug, asan, tsan, fuzz, clang"
	@echo "  make test       unit tests (release and asan) and whole-program tests, scaled down"
	@echo "  make test-full  also thread sanitizer, fuzzers, long unit tests, whole-program at full size"
	@echo "  make lint       house rules, layout, clang-tidy"
	@echo "  make format     lay the code out (clang-format)"
	@echo "  make bench      measure; nothing passes or fails"
	@echo "  make soak       fuzzers and whole-program tests at full size, no unit tests"
	@echo
	@echo "Use it"
	@echo "  make install PREFIX=/usr/local [DESTDIR=...]   program, manual page, completion"
	@echo "  make clean      remove every build"
	@echo
	@echo "One test:  build/release/tests/virtio_test --gtest_filter='*'    tests/run.py --list"
	@echo "Where things are: ARCHITECTURE.md.  How to change them: CONTRIBUTING.md."

deps:
	@tools/install-deps.sh --build
deps-demo:
	@tools/install-deps.sh --demo
deps-all:
	@tools/install-deps.sh --all

build: $(if $(filter fuzz clang,$(PRESET)),deps-all,deps)
	@cmake --preset $(PRESET) >/dev/null
	@cmake --build --preset $(PRESET)
	@echo "built $(BUILD)"

demo: deps-demo
	@$(MAKE) --no-print-directory build PRESET=release
	@$(AS_ROOT) tests/demo.py

test: deps-all
	@tools/run_tests.py

deps-full:
	@tools/install-deps.sh --full

test-full: deps-full
	@tools/run_tests.py --full

soak: deps-all
	@tools/run_tests.py --full --only fuzz
	@tools/run_tests.py --full --only program

bench: deps-all
	@$(MAKE) --no-print-directory build PRESET=release
	@$(AS_ROOT) tools/bench.sh

lint: deps-all
	@tools/lint.sh

format: deps-all
	@find src apps fuzz bench -name '*.cc' -o -name '*.h' | xargs -r clang-format -i
	@echo "laid out"

install:
	@$(MAKE) --no-print-directory build PRESET=release
	@DESTDIR="$(DESTDIR)" cmake --install build/release --prefix "$(PREFIX)"

clean:
	rm -rf build
