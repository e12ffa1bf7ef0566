//! The processes of one measurement: the bench itself as rank 0 and copies of it, started with an environment
//! variable, as the others. Orders travel as JSON lines over the children's standard streams; while a rank waits
//! for one it costs no CPU. No child outlives its parent, and the death of a child ends the bench instead of
//! hanging it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use serde::{Deserialize, Serialize};

use super::world::{Task, World, WorldPlan, create_job};

/// The variable whose presence turns the bench program into a peer.
const PEER_VARIABLE: &str = "ACTIVE_MESSAGES_BENCH_PEER";

/// What a child must know to take its place.
#[derive(Serialize, Deserialize)]
struct Role {
    rank: usize,
    parent: i32,
    plan: WorldPlan,
}

/// One piece of work that all ranks of a crew do together.
#[derive(Serialize, Deserialize)]
struct Order {
    task: Task,
    iterations: u64,
}

struct Member {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<()>,
}

/// A running set of ranks, led by this process.
pub(crate) struct Crew {
    /// This process's rank; taken out only when the crew is dropped.
    world: Option<World>,
    ranks: u32,
    members: Vec<Member>,
    closing: Arc<AtomicBool>,
    /// What this process may use again once a confined crew is gone.
    affinity: Option<CpuSet>,
}

impl Crew {
    /// Starts one process for each further rank of `plan` and joins them as rank 0.
    pub(crate) fn start(plan: WorldPlan) -> Self {
        let program = std::env::current_exe().expect("the bench can find its own program");
        let closing = Arc::new(AtomicBool::new(false));
        let (processes, ranks) = (plan.processes, plan.processes as u32);
        // Children inherit the confinement, and transports look at it when they join.
        let affinity = plan.cpu.map(confine_to);
        let resources = plan.create();
        let members = (1..processes)
            .map(|rank| {
                let role = Role { rank, parent: std::process::id() as i32, plan: resources.plan().clone() };
                let role = serde_json::to_string(&role).expect("a role is plain data");
                let mut child = Command::new(&program)
                    .env(PEER_VARIABLE, role)
                    .stdin(Stdio::piped())
                    .stdout(Stdio::piped())
                    .spawn()
                    .expect("the bench can start itself again");
                let orders = child.stdin.take();
                let answers = BufReader::new(child.stdout.take().expect("the child's output is a pipe"));
                Member { child, orders, answers: watch(rank, answers, closing.clone()) }
            })
            .collect();
        let world = Some(resources.join(0));
        Self { world, ranks, members, closing, affinity }
    }

    /// Lets every rank do `iterations` of `task` and returns the time that rank 0 took for them.
    pub(crate) fn run(&mut self, task: &Task, iterations: u64) -> Duration {
        let order = Order { task: task.clone(), iterations };
        let mut line = serde_json::to_string(&order).expect("an order is plain data");
        line.push('\n');
        for member in &mut self.members {
            let orders = member.orders.as_mut().expect("orders stay open until the crew is dropped");
            orders.write_all(line.as_bytes()).expect("a peer reads its orders");
        }
        let elapsed = self.world_mut().perform(task, iterations);
        for member in &self.members {
            member.answers.recv().expect("a peer answers every order");
        }
        elapsed
    }

    /// Runs the RandomAccess example once in a job of its own, all processes of the crew being its ranks; returns
    /// its time.
    pub(crate) fn run_random_access(&mut self, arguments: &[String]) -> Duration {
        let job = create_job(self.ranks);
        let task = Task::RandomAccess { arguments: arguments.to_vec(), job: job.fd().as_raw_fd() };
        self.run(&task, 1)
    }

    /// What the ranks reported at the end of the last task: the time of each, and the CPU it stood on.
    pub(crate) fn reports(&self) -> Vec<(Duration, u64)> {
        self.world().reports()
    }

    /// The ids of all processes of the crew.
    pub(crate) fn processes(&self) -> Vec<u32> {
        std::iter::once(std::process::id()).chain(self.members.iter().map(|member| member.child.id())).collect()
    }

    /// Whether all ranks are confined to one CPU.
    pub(crate) fn is_confined(&self) -> bool {
        self.affinity.is_some()
    }

    /// The largest Medium payload for a round trip.
    pub(crate) fn largest_medium(&self) -> usize {
        self.world().largest_medium()
    }

    fn world(&self) -> &World {
        self.world.as_ref().expect("the world lives as long as the crew")
    }

    fn world_mut(&mut self) -> &mut World {
        self.world.as_mut().expect("the world lives as long as the crew")
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.closing.store(true, SeqCst);
        if let Some(world) = self.world.take() {
            world.leave();
        }
        if let Some(affinity) = &self.affinity {
            let _ = sched_setaffinity(Pid::from_raw(0), affinity);
        }
        for member in &mut self.members {
            member.orders = None;
        }
        // A panicking bench may leave a peer spinning in a task; it never reads the end of its orders.
        let deadline = Instant::now() + Duration::from_secs(if std::thread::panicking() { 0 } else { 5 });
        for member in &mut self.members {
            loop {
                match member.child.try_wait() {
                    Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                    Ok(Some(_)) => break,
                    _ => {
                        let _ = member.child.kill();
                        let _ = member.child.wait();
                        break;
                    }
                }
            }
        }
    }
}

/// Passes on each answer of `rank`; when the peer ends without having been told to, ends the bench, because
/// rank 0 may at this moment spin for it.
fn watch(rank: usize, answers: impl BufRead + Send + 'static, closing: Arc<AtomicBool>) -> Receiver<()> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for _ in answers.lines().map_while(Result::ok) {
            if sender.send(()).is_err() {
                return;
            }
        }
        if !closing.load(SeqCst) {
            eprintln!("rank {rank} of the bench ended unexpectedly");
            std::process::exit(101);
        }
    });
    receiver
}

/// If this process was started as a peer: serves its parent until the orders end, and returns true.
pub(crate) fn serve_as_peer() -> bool {
    let Ok(role) = std::env::var(PEER_VARIABLE) else {
        return false;
    };
    let role: Role = serde_json::from_str(&role).expect("the parent passes a role");
    set_pdeathsig(Signal::SIGKILL).expect("a process may choose its parent-death signal");
    if getppid() != Pid::from_raw(role.parent) {
        // The parent died before the signal was set.
        return true;
    }
    let mut world = role.plan.open().join(role.rank);
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let order: Order = serde_json::from_str(&line).expect("the parent sends orders");
        world.perform(&order.task, order.iterations);
        println!("done");
    }
    world.leave();
    true
}

/// Confines the calling process to `cpu` and returns the CPUs that it could use before.
fn confine_to(cpu: usize) -> CpuSet {
    let before = sched_getaffinity(Pid::from_raw(0)).expect("a process may ask for its affinity");
    let mut set = CpuSet::new();
    set.set(cpu).expect("the CPU number is in range");
    sched_setaffinity(Pid::from_raw(0), &set).expect("a process may confine itself to an existing CPU");
    before
}
