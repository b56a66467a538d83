//! `tfc launch --print`: what starts a job where `tfc launch` itself does not reach.

use super::args;

/// The port that processes meet at.
const PORT: u16 = 29_770;

/// A batch script for Slurm.
pub fn slurm(args: &args::Launch) -> String {
    // A job that is requeued goes on from where it was.
    let command = shell(&resumed(args, true));
    let tasks = args.workers + args.ps;
    let mut out = format!(
        "#!/bin/bash\n#SBATCH --job-name={}\n#SBATCH --ntasks={tasks}\n#SBATCH --requeue\n",
        name(args)
    );
    if let Some(threads) = args.threads {
        out += &format!("#SBATCH --cpus-per-task={threads}\n");
    }
    if !encrypted(args) {
        out += &format!("\n# {PLAIN}\nexport TFC_PLAINTEXT=1");
    }
    out += "\nexport TFC_TOKEN=$SLURM_JOB_ID\n";
    if args.ps == 0 {
        return out + &format!("srun {command}\n");
    }
    // The first tasks are the servers; each listens at a port of its own, wherever it is, and
    // at another one than those of the job before.
    out += &format!(
        "tasks=$(srun --ntasks={tasks} bash -c 'echo $SLURM_PROCID $(hostname)' | sort -n)\n\
         export TFC_SIZE={} TFC_SERVERS=$(echo \"$tasks\" | head -n {ps} | \
         awk -v job=$SLURM_JOB_ID '{{printf \"%s%s:%d\", (NR > 1 ? \",\" : \"\"), $2, \
         {PORT} + (job * {ps} + $1) % 1000}}')\n\
         srun bash -c 'if [ $SLURM_PROCID -lt {ps} ]; then export TFC_ROLE=ps \
         TFC_RANK=$SLURM_PROCID; else export TFC_ROLE=worker TFC_RANK=$((SLURM_PROCID - {ps})); fi\n\
         exec \"$@\"' - {command}\n",
        args.workers,
        ps = args.ps
    );
    out
}

/// Indexed jobs for Kubernetes, and the service that gives their pods names.
pub fn kubernetes(args: &args::Launch) -> String {
    let name = name(args);
    let mut out = format!(
        "# Who does not know the token may not join. Make one before the job:\n\
         # kubectl create secret generic {name}-token --from-literal=token=$(openssl rand -hex 16)\n\
         apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  clusterIP: None\n  \
         selector:\n    app: {name}\n"
    );
    let servers: Vec<String> =
        (0..args.ps).map(|i| format!("{name}-ps-{i}.{name}:{PORT}")).collect();
    if args.ps > 0 {
        out += &job(args, &name, "ps", args.ps, &servers.join(","));
    }
    out + &job(args, &name, "worker", args.workers, &servers.join(","))
}

fn job(args: &args::Launch, name: &str, role: &str, count: usize, servers: &str) -> String {
    let command = resumed(args, args.restarts > 0);
    let words: Vec<String> = command.iter().map(|w| format!("{w:?}")).collect();
    let size = args.workers.to_string();
    let meets = format!("{name}-worker-0.{name}:{PORT}");
    let mut env = vec![("TFC_SIZE", size.as_str())];
    match servers.is_empty() {
        true => env.push(("TFC_COORDINATOR", &meets)),
        false => env.extend([("TFC_ROLE", role), ("TFC_SERVERS", servers)]),
    }
    let threads = args.threads.map(|n| n.to_string());
    env.extend(threads.as_deref().map(|n| ("TFC_THREADS", n)));
    let mut env: String = env
        .iter()
        .map(|(k, v)| format!("            - name: {k}\n              value: {v:?}\n"))
        .collect();
    if !encrypted(args) {
        env += &format!(
            "            # {PLAIN}\n            - name: TFC_PLAINTEXT\n              value: \"1\"\n"
        );
    }
    env += &format!(
        "            - name: TFC_TOKEN\n              valueFrom:\n                secretKeyRef:\n                  \
         name: {name}-token\n                  key: token\n"
    );
    format!(
        "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}-{role}\nspec:\n  \
         completions: {count}\n  parallelism: {count}\n  completionMode: Indexed\n  \
         backoffLimit: {restarts}\n  template:\n    metadata:\n      labels:\n        app: {name}\n    \
         spec:\n      subdomain: {name}\n      restartPolicy: OnFailure\n      containers:\n        \
         - name: {role}\n          image: {name}:latest\n          command: [{command}]\n          \
         ports:\n            - containerPort: {PORT}\n          env:\n{env}",
        restarts = args.restarts,
        command = words.join(", "),
    )
}

/// Said where messages are allowed to be plain text.
const PLAIN: &str = "Nothing on the wire is encrypted: on a network where others listen, give \
                     --tls-cert, --tls-key and --tls-ca instead.";

/// Whether the command says what messages are encrypted with.
fn encrypted(args: &args::Launch) -> bool {
    args.command.iter().any(|w| w.starts_with("--tls-cert"))
}

/// The command, which goes on from its last checkpoint where it may be `started` again.
fn resumed(args: &args::Launch, started: bool) -> Vec<String> {
    let mut words = args.command.clone();
    let given = |name: &str| words.iter().any(|w| w.starts_with(name));
    if started && given("--checkpoint-dir") && !given("--resume") {
        words.push("--resume".into());
    }
    words
}

/// What the job is called: as the program, in letters that names of pods may have.
fn name(args: &args::Launch) -> String {
    let program = args.command.first().map_or("model", String::as_str);
    let last = program.rsplit('/').next().unwrap_or(program).to_lowercase();
    let plain = last.replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let plain = plain.trim_matches('-');
    if plain.is_empty() { "model".into() } else { plain.into() }
}

/// Words as a shell takes them.
fn shell(words: &[String]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    let quoted = words.iter().map(|w| match !w.is_empty() && w.chars().all(safe) {
        true => w.clone(),
        false => format!("'{}'", w.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}
