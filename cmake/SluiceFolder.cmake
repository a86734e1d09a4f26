# sluice_folder(NAME <folder> [DEPS <folder or library>...])
#
# One library a folder: target sluice_<folder> from every *.cc beside the calling CMakeLists.txt,
# and, from every *_test.cc, one test binary <folder>_test. A name in DEPS that is one of our
# folders means its library; anything else is taken as a target. The arrows drawn by DEPS are the
# same as those tools/tidy.py checks in the #include lines.
#
# A *_mutant.cc is a gtest binary of its own, <file name>, built together with the folder's sources
# and those of the folders below it, all compiled with SLUICE_MUTANT_NO_FENCE: its tests show that
# the stress test sees a missing fence. They try until chance shows it, and want the machine for
# themselves: ctest's label is `long`, and only `tools/run_tests.py --full` runs them.
#
# A folder with headers only, or with nothing yet, becomes an INTERFACE target: others may name it
# before it has any code. New files are found by the next build (CONFIGURE_DEPENDS).
set(SLUICE_FOLDERS base memory virtio vhost packet xdp port engine control measure testing)

function(sluice_folder)
  cmake_parse_arguments(ARG "" "NAME" "DEPS" ${ARGN})
  set(target sluice_${ARG_NAME})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(mutants ${sources})
  list(FILTER mutants INCLUDE REGEX "_mutant\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_(test|mutant)\\.cc$")

  # What a mutant of this folder is made of: everything from here down.
  set(whole ${sources})
  foreach(dep IN LISTS ARG_DEPS)
    get_property(below GLOBAL PROPERTY SLUICE_WHOLE_${dep})
    list(APPEND whole ${below})
  endforeach()
  list(REMOVE_DUPLICATES whole)
  set_property(GLOBAL PROPERTY SLUICE_WHOLE_${ARG_NAME} ${whole})

  set(links sluice_flags)
  foreach(dep IN LISTS ARG_DEPS)
    if(dep IN_LIST SLUICE_FOLDERS)
      list(APPEND links sluice_${dep})
    else()
      list(APPEND links ${dep})
    endif()
  endforeach()

  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target} PUBLIC ${links})
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${links})
  endif()

  if(tests AND SLUICE_TESTS)
    sluice_test_binary(${ARG_NAME}_test ${target} ${tests})
  endif()
  if(SLUICE_TESTS)
    foreach(mutant IN LISTS mutants)
      get_filename_component(name ${mutant} NAME_WE)
      # The objects stand before the libraries on the linker's line, so theirs are the ones used.
      sluice_test_binary(${name} ${target} ${mutant} ${whole} PROPERTIES LABELS long RUN_SERIAL TRUE)
      target_compile_definitions(${name} PRIVATE SLUICE_MUTANT_NO_FENCE)
    endforeach()
  endif()
endfunction()

# sluice_test_binary(<name> <library> <source>... [PROPERTIES <ctest property> <value>...])
# One gtest binary; each TEST in it is a test of ctest's, with a time bound.
function(sluice_test_binary name library)
  cmake_parse_arguments(TEST "" "" "PROPERTIES" ${ARGN})
  add_executable(${name} ${TEST_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${library} sluice_testing GTest::gmock GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${SLUICE_TEST_FLAGS})
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests
    CROSSCOMPILING_EMULATOR "${SLUICE_TEST_LAUNCHER}")
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT ${SLUICE_TEST_SECONDS_MAX} ${TEST_PROPERTIES})
endfunction()
