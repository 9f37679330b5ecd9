/*
 * Submits held batch jobs as fast as slurmctld takes them and prints how many seconds it took.
 *
 * submit THREADS SCRIPT TRES_PER_NODE: each line on stdin is a job, "NAME<tab>COMMENT".
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

enum { MAX_JOBS = 100000, MAX_THREADS = 64, MAX_TEXT = 65536 };

static char *names[MAX_JOBS];
static char *comments[MAX_JOBS];
static int jobs;
static atomic_int next_job;
static char script[MAX_TEXT];
static char *tres_per_node;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "submit: %s: %s\n", what, why);
    exit(1);
}

static void read_script(const char *path)
{
    FILE *file = fopen(path, "r");

    if (!file)
        fail(path, "cannot be read");
    script[fread(script, 1, sizeof script - 1, file)] = '\0';
    fclose(file);
}

static void read_jobs(void)
{
    static char line[MAX_TEXT];

    while (jobs < MAX_JOBS && fgets(line, sizeof line, stdin)) {
        char *tab = strchr(line, '\t');

        if (!tab)
            fail(line, "has no tab");
        line[strcspn(line, "\n")] = '\0';
        *tab = '\0';
        names[jobs] = strdup(line);
        comments[jobs++] = strdup(tab + 1);
    }
}

static void submit_one(int index)
{
    char *environment[] = { "PATH=/usr/bin:/bin", "HOME=/" };
    char *words[] = { "/srv/jobs/train.sh" };
    job_desc_msg_t job;
    submit_response_msg_t *answer = NULL;

    slurm_init_job_desc_msg(&job);
    job.name = names[index];
    job.comment = comments[index];
    job.script = script;
    job.argc = 1;
    job.argv = words;
    job.environment = environment;
    job.env_size = 2;
    job.tres_per_node = tres_per_node;
    job.min_nodes = 1;
    job.priority = 0;
    job.user_id = getuid();
    job.group_id = getgid();
    job.work_dir = "/";
    job.std_out = "/dev/null";
    if (slurm_submit_batch_job(&job, &answer) != SLURM_SUCCESS)
        fail(names[index], slurm_strerror(errno));
    slurm_free_submit_response_response_msg(answer);
}

static void *work(void *unused)
{
    for (int index; (index = atomic_fetch_add(&next_job, 1)) < jobs;)
        submit_one(index);
    return unused;
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + 1e-9 * now.tv_nsec;
}

int main(int argc, char **argv)
{
    pthread_t threads[MAX_THREADS];
    int count = argc == 4 ? atoi(argv[1]) : 0;
    double start_s;

    if (count < 1 || count > MAX_THREADS)
        fail("submit", "THREADS SCRIPT TRES_PER_NODE are needed");
    read_script(argv[2]);
    tres_per_node = argv[3];
    read_jobs();
    slurm_init(NULL);
    start_s = now_s();
    for (int i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, work, NULL))
            fail("submit", "a thread cannot be made");
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%.6f\n", now_s() - start_s);
    slurm_fini();
    return 0;
}
