use super::*;
use crate::Pool;
use crate::worker::Worker;

/// Cores that the calling thread may run on.
fn allowed() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU)
        .filter(|&core| set.is_set(core))
        .collect()
}

#[test]
fn threads_run_on_their_cores() {
    let cores = allowed();
    let affinity = Affinity::new(cores.clone());
    assert_eq!(affinity.missing().unwrap(), None);
    let pool = Pool::on("pinned", 2 * cores.len(), affinity.clone());
    let of_thread = pool.map((0..64).collect(), |_| {
        (rayon::current_thread_index().unwrap(), allowed())
    });
    for (number, found) in of_thread {
        assert_eq!(found, [cores[number % cores.len()]]);
    }
    let (told, found) = std::sync::mpsc::channel();
    for number in 0..3 {
        let worker = Worker::on("pinned", affinity.clone(), number);
        let told = told.clone();
        worker.set_work(move || {
            told.send(allowed()).unwrap();
            None
        });
        worker.call().unwrap();
        assert_eq!(found.recv().unwrap(), [cores[number % cores.len()]]);
        worker.stop();
    }
    assert_eq!(allowed(), cores, "the caller is not pinned");
}

#[test]
fn cores_that_are_not_there_are_named() {
    let cores = allowed();
    for core in [CpuSet::MAX_CPU - 1, CpuSet::MAX_CPU, usize::MAX] {
        let affinity = Affinity::new(vec![cores[0], core]);
        assert_eq!(affinity.missing().unwrap(), Some((core, cores.clone())));
    }
    // Without any of them a thread runs anywhere.
    Affinity::default().pin(7);
    assert_eq!(Affinity::default().missing().unwrap(), None);
    assert_eq!(allowed(), cores);
}

#[test]
fn threads_that_pinned_ones_start_run_anywhere() {
    let cores = allowed();
    let (told, found) = std::sync::mpsc::channel();
    let pinned = Worker::on("pinned", Affinity::new(cores[..1].to_vec()), 0);
    pinned.set_work(move || {
        let one = Affinity::new(vec![*cores.last().unwrap()]);
        told.send((one.missing().unwrap(), vec![])).unwrap();
        let other = Worker::new("other");
        let of_other = told.clone();
        other.set_work(move || {
            of_other.send((None, allowed())).unwrap();
            None
        });
        other.call().unwrap();
        other.stop();
        let pool = Pool::new("others", 2);
        for allowed in pool.map(vec![(); 8], |()| allowed()) {
            told.send((None, allowed)).unwrap();
        }
        let this = std::thread::current().id();
        let mine = |_| {
            // The other part is another thread's then.
            std::thread::sleep(std::time::Duration::from_millis(50));
            (std::thread::current().id() == this, allowed())
        };
        for (is_mine, allowed) in crate::parallel::map_waiting(0..8, mine) {
            if !is_mine {
                told.send((None, allowed)).unwrap();
            }
        }
        None
    });
    pinned.call().unwrap();
    // A store that it opens may use all of them.
    assert_eq!(found.recv().unwrap().0, None);
    pinned.stop();
    let all = allowed();
    let others: Vec<Vec<usize>> = found.iter().map(|(_, allowed)| allowed).collect();
    // One worker, eight parts of the pool, and at least one of the parts that wait.
    assert!(others.len() > 9, "{others:?}");
    assert!(others.iter().all(|allowed| *allowed == all), "{others:?}");
}

#[test]
fn thread_without_its_core_runs_anywhere() {
    let all = allowed();
    Affinity::new(vec![CpuSet::MAX_CPU]).pin(0);
    Affinity::new(vec![usize::MAX]).pin(3);
    assert_eq!(allowed(), all);
}
