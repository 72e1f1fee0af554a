#!/usr/bin/env python3
# A perftest program that behaves as it is told.
import os, signal, socket, subprocess, sys, time

MODE, LOG = "@MODE@", "@LOG@"
# In the first line, which is what is told of a program without a result.
sys.excepthook = lambda kind, error, trace: print(f"{sys.argv[-1]}: line {trace.tb_lineno}: {error!r}")
TABLE = " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n" \
        " 1048576    90000            0.00               {} \t\t   0.022\n"
LATENCY = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   " \
          "99% percentile[usec]   99.9% percentile[usec] \n 8       2000          1.01           7.50         1.21     " \
          "\t       1.25        \t0.10   \t\t1.55    \t\t7.10   \n"


def note(pid, port, role):
    with open(LOG, "a") as log:
        log.write(f"{pid}\t{port}\t{os.getcwd()}\t{role}\t{' '.join(sys.argv)}\n")


arguments = sys.argv[1:]
if "--help" in arguments:
    print("      --out_json_file=<file>  Name of the report json file.")
    sys.exit(0)
port = int(arguments[arguments.index("-p") + 1])
latency = "lat" in os.path.basename(sys.argv[0])
if arguments[-1] != "127.0.0.1":
    note(os.getpid(), port, "server")
    if MODE == "taken" and sum("server" in line for line in open(LOG)) == 1:
        print(f"Couldn't listen to port {port}")
        sys.exit(1)
    if MODE == "down":
        print(" Port number 1 state is Down\n Couldn't set the link layer")
        sys.exit(1)
    server = socket.socket()
    server.bind(("", port))
    server.listen(1)
    if MODE == "gone":
        time.sleep(0.3)
        sys.exit(0)
    connection, _ = server.accept()
    connection.recv(1)
    sys.exit(0)

note(os.getpid(), port, "client")
file = [word.split("=", 1)[1] for word in arguments if word.startswith("--out_json_file=")][0]
if MODE == "gone":
    print(f"Couldn't connect to 127.0.0.1:{port}")
    sys.exit(1)
if MODE not in ("hang", "stubborn"):
    socket.create_connection(("127.0.0.1", port)).close()
if latency:
    print(LATENCY)
    sys.exit(0)
if MODE == "hang":
    time.sleep(600)
elif MODE == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "600"])
    note(child.pid, port, "child")
    while True:
        time.sleep(0.1)
elif MODE == "garbage":
    sys.stdout.buffer.write(bytes(range(256)) * 16 + b"\n0x 12 ** NaN -- 1048576 inf\n")
elif MODE == "unquoted":
    with open(file, "w") as out:
        out.write("{\ntest_info: {\ntest: RDMA_Write_BW_Test,\nDevice: mlx5_0,\n},\nresults: {\nMsgSize: 1048576,\n"
                  "n_iterations: 90000,\nBW_peak: 0.00,\nBW_average: 188.25,\nMsgRate: 0.022,\n},\n}\n")
elif MODE == "negative":
    with open(file, "w") as out:
        out.write('{"results": {"MsgSize": 1048576, "BW_average": -41.5}}')
elif MODE == "overwritten":
    with open(file, "w") as out:
        out.write('}\n{"test_info": {"Device": "mlx5_7')
    with open("perftest_out.json", "w") as out:
        out.write("another run's")
    print(TABLE.format("187.50"))
elif MODE == "late":
    print(TABLE.format("186.00"))
    sys.stdout.flush()
    time.sleep(0.3)
    sys.exit(1)
elif MODE == "status":
    print("Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\nscnt=128, ccnt=0")
    sys.exit(1)
elif MODE == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
elif MODE == "slow":
    print(TABLE.format("13.10"))
elif MODE == "wild":
    print(TABLE.format("913.10"))
else:
    print(TABLE.format("189.75"))
    with open(file, "w") as out:
        out.write('{"results": {"MsgSize": 1048576, "n_iterations": 90000, "BW_peak": 0, "BW_average": 190.25}}')
