//! `help`: the commands with their options.

use crate::terminal::put;

const HELP: &str = "\
Cluster Manager Commands:
  create         host1:port1 ... hostN:portN
                 --cluster-replicas <arg>
  check          <host:port> or <host> <port> - separated by either colon or space
                 --cluster-search-multiple-owners
  info           <host:port> or <host> <port> - separated by either colon or space
  fix            <host:port> or <host> <port> - separated by either colon or space
                 --cluster-search-multiple-owners
                 --cluster-fix-with-unreachable-primaries
                 --cluster-replace
  reshard        <host:port> or <host> <port> - separated by either colon or space
                 --cluster-from <arg>
                 --cluster-to <arg>
                 --cluster-slots <arg>
                 --cluster-yes
                 --cluster-timeout <arg>
                 --cluster-pipeline <arg>
                 --cluster-replace
                 --cluster-use-atomic-slot-migration
  rebalance      <host:port> or <host> <port> - separated by either colon or space
                 --cluster-weight <node1=w1...nodeN=wN>
                 --cluster-use-empty-primaries
                 --cluster-timeout <arg>
                 --cluster-simulate
                 --cluster-pipeline <arg>
                 --cluster-threshold <arg>
                 --cluster-replace
                 --cluster-use-atomic-slot-migration
                 --by-bytes   equal shares of memory (memory-bytes of CLUSTER SLOT-STATS)
                 --by-cpu     equal shares of CPU time (cpu-usec of CLUSTER SLOT-STATS);
                              with -i <seconds>: of so many seconds from now
  add-node       new_host:new_port existing_host:existing_port
                 --cluster-replica
                 --cluster-primary-id <arg>
  del-node       host:port node_id
  call           host:port command arg arg .. arg
                 --cluster-only-primaries
                 --cluster-only-replicas
  set-timeout    host:port milliseconds
  import         host:port
                 --cluster-from <arg>
                 --cluster-from-user <arg>
                 --cluster-from-pass <arg>
                 --cluster-from-askpass
                 --cluster-copy
                 --cluster-replace
  backup         host:port backup_directory
  help           

For check, fix, reshard, del-node, set-timeout, info, rebalance, call, import, backup you can specify the host and port of any working node in the cluster.

Cluster Manager Options:
  --cluster-yes  Automatic yes to cluster commands prompts

Where an option has `primaries` or `replica`, `masters` and `slave` are understood too.

";

pub fn help() {
    put(HELP);
}
