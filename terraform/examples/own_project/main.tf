# The platform for a project of one's own: copy this folder into the project's repository.
# ORGANISATION is who has the repository of Tailrace; the tag after ?ref= is the version of Tailrace that the project has.
module "platform" {
  #checkov:skip=CKV_TF_1:a release is named by its tag, which the project's requirements name, too
  source = "git::https://github.com/ORGANISATION/tailrace.git//terraform/modules/platform?ref=v0.9.0"

  project     = var.project
  environment = var.environment
  account_id  = data.aws_caller_identity.this.account_id
  partition   = data.aws_partition.this.partition
  region      = var.region

  # `tailrace bundle --to $(terraform output -raw artifacts)` puts the project's definitions there. Without an image,
  # the bundle also brings Python and the jars; with one, `tailrace bundle --no-workers` is enough.
  artifacts_prefix = var.release
  image_uri        = var.image_uri
  packed_python    = var.image_uri == null
  jars             = var.image_uri == null ? ["*.jar"] : []

  # The log that each stream reads, for its alarms, and where its files or messages come from.
  streams         = var.streams
  landing         = var.landing
  kafka_bootstrap = var.kafka_bootstrap
  alarm_emails    = var.alarm_emails

  # The DAGs run in an Airflow that is there already.
  create_mwaa = false
}

data "aws_caller_identity" "this" {}

data "aws_partition" "this" {}

provider "aws" {
  region = var.region

  default_tags {
    tags = {
      Project     = var.project
      Environment = var.environment
      ManagedBy   = "terraform"
    }
  }
}
