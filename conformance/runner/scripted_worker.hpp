// A worker for tests of the runner: it loads no backend, and behaves toward its supervisor as a
// script says. The test program starts itself again as its workers, as bp-conformance does.
//
// WorkerSetup::plugin decides how the worker begins and ends:
//
//   ""               well
//   hello:TEXT       TEXT is the payload of HELLO
//   hello_exit:CODE  exits with CODE after HELLO
//   no_hello:CODE    exits with CODE before it says anything
//   mute             never says HELLO
//   begin_first      sends BEGIN where HELLO belongs
//   print:TEXT       prints TEXT while it loads
//   bye:TEXT         TEXT is the payload of BYE
//   bye_exit:CODE    exits with CODE after BYE
//   bye_crash        dies of SIGSEGV in the place of BYE
//
// Each of WorkerSetup::options is a case id and what the worker does there. Cases without an option
// pass.
//
//   end:TEXT         TEXT is the payload of END, without "case" and "wall_ms"
//   fail:CAUSE       ends as Fail, with that cause
//   once:CAUSE       fails in attempt 1, and passes in each other attempt
//   after:IDS:CAUSE  fails if each of the cases IDS, separated by commas, ran before it in this
//                    process
//   differs:N:CAUSE  fails in attempt N alone
//   fails_but:N:CAUSE  fails in each attempt but N
//   changes          fails in attempt N with cause "attempt N"
//   lost             fails, and says that the device is lost
//   raw:TEXT         sends these bytes in the place of END
//   cut              sends half of END and exits with code 0
//   other            sends END for another case
//   no_begin         sends END without BEGIN
//   begin_twice      sends BEGIN twice
//   no_time          sends END without "wall_ms"
//   print:TEXT       prints TEXT and passes
//   flood:COUNT      prints COUNT bytes and passes
//   exit:CODE        exits
//   segfault:PHASE   says that it is in PHASE, and dies of SIGSEGV
//   hang:PHASE       says that it is in PHASE, and never ends
//   deaf:PHASE       hangs, and ignores SIGTERM
//   leave            leaves a process of a session of its own behind, and dies of SIGSEGV
//   kill_parent      kills its parent, the warden
//   stop_parent:CODE stops its parent, the warden, and exits; it first waits until the warden has
//                    closed the pipes of the worker
//   dies_late        passes, and dies of SIGSEGV before the next case
#pragma once

#include <string>

namespace bp::conformance {

// Runs the worker that `--worker SETUP` describes, and returns its exit code.
int run_scripted_worker(const std::string& setup_json);

}  // namespace bp::conformance
