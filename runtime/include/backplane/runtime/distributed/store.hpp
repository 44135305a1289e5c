// Stores: keys and values that all processes of a job see, so that they find each other.
//
//   bp::distributed::TcpStore store("node0", 29500, rank == 0, world_size);
//   store.put("greeting", "hello");
//   std::string text = store.get("greeting");   // Waits until some rank has put it.
//   store.barrier("ready", rank, world_size);
//
// Rules for everything here, unless it says otherwise:
//   Threads    Safe from any thread; a call that waits holds up no other call.
//   Blocking   get(), wait() and barrier() wait, and no longer than their timeout. The other calls
//              wait only for the store itself.
//   Errors     Throws bp::Error, which names the call and the key: BP_TIMEOUT if something did not
//              come in time, BP_ABORTED if the store is gone or does not answer,
//              BP_INVALID_ARGUMENT for a misuse.
//   Ownership  Who makes a store keeps it until all process groups that use it are destroyed.
//   Sizes      A key has 1 to 1,024 bytes, a value up to 1 MiB. Keys are never removed.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backplane/collective.h"

namespace bp::distributed {

using Duration = std::chrono::nanoseconds;

inline constexpr Duration kStoreTimeout = std::chrono::minutes(5);
inline constexpr uint64_t kMaxKeyBytes = 1024;
inline constexpr uint64_t kMaxValueBytes = uint64_t{1} << 20;

class Store {
 public:
  Store();
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Returns the value of `key`, and waits until there is one.
  std::string get(const std::string& key, Duration timeout = kStoreTimeout);

  virtual std::optional<std::string> try_get(const std::string& key) = 0;

  // Replaces an earlier value.
  virtual void put(const std::string& key, const std::string& value) = 0;

  // Adds `amount` to the decimal number that is the value of `key`, or 0 if there is none, and
  // returns the sum. No other call comes between.
  virtual int64_t add(const std::string& key, int64_t amount) = 0;

  // Waits until all keys are there. The error lists the keys that are missing.
  virtual void wait(std::span<const std::string> keys, Duration timeout = kStoreTimeout) = 0;

  // Waits until all ranks are in the barrier of this name. The error lists the ranks that are
  // missing. A name serves any number of barriers, one after the other. A store may end as soon as
  // one rank is through a barrier: the other ranks come through as well.
  void barrier(const std::string& name, uint32_t rank, uint32_t world_size,
               Duration timeout = kStoreTimeout);

  // Lends the C table of this store, which lives as long as the store. Its functions do not throw.
  const bp_store& table() const { return table_; }

  // Returns the text of the latest failure of a function of table(); "" if none failed.
  std::string table_error() const;

 protected:
  // Puts an empty value, and waits for `keys`.
  virtual void put_and_wait(const std::string& key, std::span<const std::string> keys,
                            Duration timeout);

 private:
  friend struct StoreTable;
  const bp_store table_;
  mutable std::mutex mutex_;  // Guards the members below.
  std::string table_error_;
  std::map<std::pair<std::string, uint32_t>, uint64_t> barrier_counts_;  // By name and rank.
};

// A store in one file, which all processes can write: on a local disk, or on a network disk with
// locks. The first process makes the file. A file serves one job, so it must be new or empty when
// the job begins; nobody removes it.
class FileStore final : public Store {
 public:
  explicit FileStore(std::string path);
  ~FileStore() override;

  std::optional<std::string> try_get(const std::string& key) override;
  void put(const std::string& key, const std::string& value) override;
  int64_t add(const std::string& key, int64_t amount) override;
  void wait(std::span<const std::string> keys, Duration timeout = kStoreTimeout) override;

 private:
  struct File;
  const std::unique_ptr<File> file_;
};

// A store that one process serves by TCP, from a thread of its own. The constructor waits until
// `world_size` stores, one for each rank, have joined. With a world size of 0 in all processes it
// waits for the server alone, and any number of stores may come and go. It throws
//   BP_ALREADY_EXISTS    if another program uses the port,
//   BP_TIMEOUT           if nobody listens at host and port, or too few ranks join in time,
//   BP_INVALID_ARGUMENT  on every rank, with both numbers, if ranks give different world sizes.
//
// The server keeps no secrets and asks for none: whoever reaches the port can read and write. It
// listens on the loopback address if `host` is one, else on all addresses. The store ends with the
// object that serves it; calls on other ranks then throw BP_ABORTED.
//
// The server answers each call within `timeout`, but may always take 5 s, and never more than 60 s.
// If the network loses the answer, a call throws BP_ABORTED after this time. For get(), wait() and
// barrier() it begins when their own timeout has passed.
class TcpStore final : public Store {
 public:
  // A server with port 0 takes a free port. Since the others cannot know it yet, this is for a
  // world of one rank.
  TcpStore(std::string host, uint16_t port, bool is_server, uint32_t world_size,
           Duration timeout = kStoreTimeout);
  ~TcpStore() override;

  std::optional<std::string> try_get(const std::string& key) override;
  void put(const std::string& key, const std::string& value) override;
  int64_t add(const std::string& key, int64_t amount) override;
  void wait(std::span<const std::string> keys, Duration timeout = kStoreTimeout) override;

  uint16_t port() const;

 protected:
  void put_and_wait(const std::string& key, std::span<const std::string> keys,
                    Duration timeout) override;

 private:
  struct Client;
  const std::unique_ptr<Client> client_;
};

}  // namespace bp::distributed
