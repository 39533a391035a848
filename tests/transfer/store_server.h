// Real servers of names, Redis and etcd, on this host, and one that answers what it is told.
#pragma once

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "support/eventually.h"
#include "support/stop.h"
#include "transfer/directory/store.h"

namespace braid::transfer::test {

using braid::test::eventually;

/// A socket that is bound to a free port of 127.0.0.1.
inline int bound_socket(uint16_t& port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size_bytes = sizeof address;
  (void)bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  (void)getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size_bytes);
  port = ntohs(address.sin_port);
  return socket;
}
inline std::string free_port() {
  uint16_t port = 0;
  close(bound_socket(port));
  return std::to_string(port);
}

/// Killed at the end, and its folder removed.
class StoreServer {
 public:
  /// `more`: of its command line. `login`: "USER:PASSWORD", as in URLs, of `url` and `client`.
  explicit StoreServer(StoreKind kind, std::string folder, std::vector<std::string> more = {},
                       std::string login = {})
      : kind_(kind),
        folder_(std::move(folder)),
        more_(std::move(more)),
        login_(std::move(login)),
        port_(free_port()),
        peer_port_(free_port()) {}
  ~StoreServer() { stop(); }
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  std::string program() const { return kind_ == StoreKind::kRedis ? "redis-server" : "etcd"; }
  bool is_installed() const {
    return std::system(("command -v " + program() + " >/dev/null").c_str()) == 0;
  }
  std::string url() const { return url(login_); }
  std::string url(const std::string& login) const {
    return (kind_ == StoreKind::kRedis ? "redis://" : "etcd://") + login +
           (login.empty() ? "" : "@") + "127.0.0.1:" + port_;
  }
  std::string port() const { return port_; }
  std::unique_ptr<Store> client() const { return open_store(url()).value(); }

  /// Empty, whatever was there before. False: it does not answer.
  bool start() {
    std::filesystem::remove_all(folder_);
    process_ = fork();
    if (process_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      std::vector<char*> words;
      std::vector<std::string> all = command();
      all.insert(all.end(), more_.begin(), more_.end());
      for (const std::string& each : all) words.push_back(const_cast<char*>(each.c_str()));
      words.push_back(nullptr);
      execvp(words.front(), words.data());
      _exit(127);
    }
    return eventually([this] { return client()->put("start", "", "up").ok(); });
  }
  void stop() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = -1;
    std::filesystem::remove_all(folder_);
  }
  void signal(int number) const { kill(process_, number); }
  /// Until SIGCONT, or `stop`: it takes questions, and does not answer.
  void freeze() const { braid::test::stop(process_); }

 private:
  std::vector<std::string> command() const {
    if (kind_ == StoreKind::kRedis)
      return {program(), "--port", port_, "--save", "", "--loglevel", "warning"};
    const std::string here = "http://127.0.0.1:" + port_, peer = "http://127.0.0.1:" + peer_port_;
    return {program(),
            "--data-dir=" + folder_,
            "--listen-client-urls=" + here,
            "--advertise-client-urls=" + here,
            "--listen-peer-urls=" + peer,
            "--initial-advertise-peer-urls=" + peer,
            "--initial-cluster=default=" + peer,
            "--log-level=error",
            "--logger=zap"};
  }

  const StoreKind kind_;
  const std::string folder_;
  const std::vector<std::string> more_;
  const std::string login_;
  const std::string port_;
  const std::string peer_port_;
  pid_t process_ = -1;
};

/// Gives everybody who connects the same bytes, and may then go on for ever.
class Liar {
 public:
  explicit Liar(std::string answer, std::string without_end = {})
      : socket_(bound_socket(port_)),
        answer_(std::move(answer)),
        without_end_(std::move(without_end)) {
    listen(socket_, 8);
    thread_ = std::thread([this] { work(); });
  }
  ~Liar() {
    is_ending_ = true;
    shutdown(socket_, SHUT_RDWR);
    thread_.join();
    close(socket_);
  }
  std::string port() const { return std::to_string(port_); }

 private:
  void work() {
    while (!is_ending_) {
      const int peer = accept(socket_, nullptr, nullptr);
      if (peer < 0) return;
      char question[4096];
      (void)recv(peer, question, sizeof question, 0);
      bool goes_on = say(peer, answer_);
      while (goes_on && !without_end_.empty() && !is_ending_) {
        goes_on = say(peer, without_end_);
        if (without_end_.size() < 16) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      // Who reads on finds the end where the answer is short of one.
      close(peer);
    }
  }
  static bool say(int peer, const std::string& words) {
    return send(peer, words.data(), words.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(words.size());
  }

  uint16_t port_ = 0;
  const int socket_;
  const std::string answer_;
  const std::string without_end_;
  std::atomic<bool> is_ending_ = false;
  std::thread thread_;
};

}  // namespace braid::transfer::test
