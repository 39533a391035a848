# The short way in. Everything real is in CMake and in scripts/; presets are in CMakePresets.json.
MAKEFLAGS += --no-print-directory
PRESET ?= default
BUILD = $(if $(filter default,$(PRESET)),build,build-$(PRESET))

.PHONY: help build demo test bench gpu-test gpu-bench format clean bootstrap

help:
	@echo 'make build      build/bin/braid and its libraries'
	@echo 'make demo       an unmodified program, native and under braid: table and plot'
	@echo 'make test       every test that needs no GPU; PRESET=clang, asan or tsan for other builds'
	@echo 'make bench      braid bench on the emulated 8-GPU server'
	@echo 'make gpu-test   tests on real GPUs'
	@echo 'make gpu-bench  measurements on real GPUs'
	@echo 'make format     clang-format on every source file'
	@echo 'make clean      remove what was built'

bootstrap:
	@scripts/bootstrap

build: bootstrap
	@cmake --preset $(PRESET) --log-level=WARNING
	@cmake --build --preset $(PRESET)

demo: build
	@demo/run --build $(BUILD)

test:
	@scripts/bootstrap --clients
	@$(MAKE) build
	@scripts/test $(BUILD)

bench: build
	@$(BUILD)/bin/braid bench --server h20x8

gpu-test: build
	@scripts/gpu-test

gpu-bench: build
	@scripts/gpu-bench

format:
	@scripts/format

clean:
	@rm -rf build build-clang build-asan build-tsan
