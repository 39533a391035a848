# The short way in. Everything real is in CMake and in scripts/; presets are in CMakePresets.json.
MAKEFLAGS += --no-print-directory
PRESET ?= default
BUILD = $(if $(filter default,$(PRESET)),build,build-$(PRESET))
CONFIGURE = cmake --preset $(PRESET) --log-level=WARNING
COMPILE = cmake --build --preset $(PRESET)
# A build folder that has no tests does not get them here, and one that has them keeps them.
WITHOUT_TESTS = $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DBRAID_BUILD_TESTS=OFF)

.PHONY: help build demo package tests test test-long bench peers wheel-tests gpu-test gpu-bench format clean bootstrap

help:
	@echo 'make demo       an unmodified program, native and under braid: table and plot'
	@echo 'make build      build/bin/braid and its libraries'
	@echo 'make package    a .deb and a tarball, in build/packages'
	@echo 'make test       the tests of each change; PRESET=clang, asan or tsan for other builds'
	@echo 'make test-long  the others that need no GPU'
	@echo 'make bench      braid bench on the emulated 8-GPU server'
	@echo 'make peers      NIXL and Mooncake in build/peers, for braid fabric bench --against'
	@echo 'make wheel-tests TESTS=FOLDER  tests of the wheel of Mooncake, in FOLDER, on the door of braid'
	@echo 'make gpu-test   tests on real GPUs'
	@echo 'make gpu-bench  measurements on real GPUs'
	@echo 'make format     clang-format on every source file'
	@echo 'make clean      remove what was built'

bootstrap:
	@scripts/bootstrap

demo:
	@scripts/bootstrap --demo
	@$(CONFIGURE) $(WITHOUT_TESTS)
	@$(COMPILE) --target braid_demo
	@demo/run --build $(BUILD)

build: bootstrap
	@$(CONFIGURE) $(WITHOUT_TESTS)
	@$(COMPILE) --target braid_installed

package: build
	@$(COMPILE) --target package

tests:
	@scripts/bootstrap --tests
	@$(CONFIGURE) -DBRAID_BUILD_TESTS=ON
	@$(COMPILE)

test: tests
	@scripts/test $(BUILD)

test-long: tests
	@scripts/test $(BUILD) --long

bench: build
	@$(BUILD)/bin/braid bench --server h20x8

peers:
	@python3 -m venv $(BUILD)/peers
	@$(BUILD)/peers/bin/pip install --quiet --no-deps -r bench/fabric/peers/requirements.txt
	@echo '$(BUILD)/bin/braid fabric bench --against plain,nixl,mooncake --python $(BUILD)/peers/bin/python'

wheel-tests: build
	@tests/transfer/wheel_tests.py --build $(BUILD) $(TESTS)

gpu-test: tests
	@scripts/gpu-test

gpu-bench: tests
	@scripts/gpu-bench

format:
	@scripts/format

clean:
	@rm -rf build build-clang build-asan build-tsan
