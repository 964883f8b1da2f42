from nexo.simulation.world import World
import sys, time, traceback

t = time.perf_counter()
bad = 0
lo, hi = int(sys.argv[1]), int(sys.argv[2])
for seed in range(lo, hi):
    w = World(seed)
    try:
        w.run()
    except BaseException as e:
        if isinstance(e, KeyboardInterrupt):
            raise
        bad += 1
        print(seed, type(e).__name__, str(e)[:300])
        if hi - lo == 1:
            traceback.print_exc()
            print("\n".join(w.history.around(*getattr(e, "about", ()))))
print(f"{hi - lo} seeds {bad} bad {(hi - lo) / (time.perf_counter() - t):.1f}/s")
