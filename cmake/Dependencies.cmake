# Every library we use, and the flags that all our targets share. The reasons for each library are
# in README.md ("What it is built from").
find_package(fmt REQUIRED)
find_package(tl-expected REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Threads REQUIRED)

# toml++ is used as headers only: no shared library to load for one config file.
find_path(TOMLPLUSPLUS_INCLUDE toml++/toml.h REQUIRED)
add_library(sluice_toml INTERFACE)
target_include_directories(sluice_toml SYSTEM INTERFACE ${TOMLPLUSPLUS_INCLUDE})
target_compile_definitions(sluice_toml INTERFACE TOML_HEADER_ONLY=1)

# libbpf has no CMake package.
find_package(PkgConfig REQUIRED)
pkg_check_modules(LIBBPF REQUIRED IMPORTED_TARGET libbpf>=1.1)
add_library(sluice_bpf ALIAS PkgConfig::LIBBPF)
pkg_check_modules(LIBMD REQUIRED IMPORTED_TARGET libmd)
add_library(sluice_md ALIAS PkgConfig::LIBMD)

# xbyak is headers; its own warnings are not ours.
find_path(XBYAK_INCLUDE xbyak/xbyak.h REQUIRED)
add_library(sluice_xbyak INTERFACE)
target_include_directories(sluice_xbyak SYSTEM INTERFACE ${XBYAK_INCLUDE})

if(SLUICE_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
if(SLUICE_BENCH)
  find_package(benchmark REQUIRED)
endif()

# What every target of ours is compiled with.
add_library(sluice_flags INTERFACE)
target_compile_options(sluice_flags INTERFACE -Wall -Wextra -Werror -Wshadow)
target_include_directories(sluice_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
target_compile_definitions(sluice_flags INTERFACE SLUICE_VERSION="${PROJECT_VERSION}")
if(SLUICE_SANITIZE)
  # The build must fail a test on the first report, so nothing recovers.
  target_compile_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  string(REPLACE "fuzzer-no-link," "" SLUICE_SANITIZE_LINK "${SLUICE_SANITIZE}")
  target_link_options(sluice_flags INTERFACE -fsanitize=${SLUICE_SANITIZE_LINK})
endif()

# Thread sanitizer's shadow does not fit every randomised address space: programs of that build are
# started with randomisation off, the test discovery included.
if(SLUICE_SANITIZE MATCHES "thread")
  find_program(SLUICE_SETARCH setarch REQUIRED)
  set(SLUICE_TEST_LAUNCHER ${SLUICE_SETARCH} -R)
else()
  set(SLUICE_TEST_LAUNCHER "")
endif()

# A hang is a failure. Sanitizers are several times slower, so their bound is wider.
set(SLUICE_TEST_SECONDS_MAX 120)
# Half of a build's time goes into the optimising of test code, which nobody needs: under a
# sanitizer a third of the time is enough without. Line tables suffice for a backtrace.
set(SLUICE_TEST_FLAGS -g1)
if(SLUICE_SANITIZE)
  list(APPEND SLUICE_TEST_FLAGS -O0)
  set(SLUICE_TEST_SECONDS_MAX 300)
endif()
